"""The same parts while the text still comes: one delta of a stream after another.

Here the arguments are passed on as they were sampled, and a call shows before it can be known to be good: a
stream and a finished answer do not say the same about one reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from attrs import define, field

from .parsing import divide, held
from .vocabulary import CALL, CALLED

NAME = re.compile(r'"name"\s*:\s*"([^"]+)"')
ARGUMENTS = re.compile(r'"arguments"\s*:\s*')


@define
class Deltas:
    """The parser of one stream."""

    thinking: bool
    tools: bool
    call_id: Callable[[int], str]
    _text: str = field(default="", init=False)
    _thought: int = field(default=0, init=False)
    _said: int = field(default=0, init=False)
    _sent: list[int] = field(factory=list, init=False)
    """How many characters of each call's arguments were passed on."""

    def feed(self, text: str, *, final: bool) -> dict[str, Any]:
        """Add text; return the delta that it makes certain, which may be empty."""
        self._text += text
        thought, said = divide(self._text, final=final) if self.thinking else ("", self._text)
        delta: dict[str, Any] = {}
        if said is not None:
            delta |= self._content(said, final=final)
        if len(thought) > self._thought:
            delta["reasoning"] = thought[self._thought :]
            self._thought = len(thought)
        if said is not None and self.tools and (calls := self._calls(said)):
            delta = {"content": None, **delta, "tool_calls": calls}
        return delta

    def _content(self, said: str, *, final: bool) -> dict[str, Any]:
        """Return the words that are certain to stand before any call."""
        sure = said
        if self.tools:
            before, tag, _ = said.partition(CALL)
            sure = before if tag or final else before[: len(before) - held(before, CALL)]
        new, self._said = sure[self._said :], max(len(sure), self._said)
        return {"content": new} if new else {}

    def _calls(self, said: str) -> list[dict[str, Any]]:
        """Return what is new of each call, up to the first whose name is not known yet."""
        new: list[dict[str, Any]] = []
        for place, (body, closed) in enumerate(_bodies(said)):
            name = NAME.search(body)
            if name is None:
                break
            if place == len(self._sent):
                self._sent.append(0)
                new.append(_opened(place, self.call_id(place), name.group(1)))
            new += self._arguments(place, body, closed=closed)
        return new

    def _arguments(self, place: int, body: str, *, closed: bool) -> list[dict[str, Any]]:
        written = _written(body, closed=closed)
        more = written[self._sent[place] :]
        self._sent[place] = len(written)
        return [{"index": place, "function": {"arguments": more}}] if more else []


def _opened(place: int, identifier: str, name: str) -> dict[str, Any]:
    return {"id": identifier, "type": "function", "index": place, "function": {"name": name}}


def _bodies(said: str) -> list[tuple[str, bool]]:
    """Return the text of every call so far, and whether it is all there."""
    found: list[tuple[str, bool]] = []
    rest = said.partition(CALL)[1:]
    while rest[0]:
        body, closed, after = rest[1].partition(CALLED)
        sure = (body if closed else body[: len(body) - held(body, CALLED)]).strip()
        found.append((sure, bool(closed) or _is_json(sure)))
        rest = after.partition(CALL)[1:]
    return found


def _written(body: str, *, closed: bool) -> str:
    """Return the arguments as sampled, without the brace that closes the call around them."""
    found = ARGUMENTS.search(body)
    if found is None:
        return ""
    text = body[found.end() :]
    return text.rstrip().removesuffix("}").rstrip() if closed else text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
