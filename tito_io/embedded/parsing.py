"""A finished text as the parts of an assistant message: what was thought, said, called.

The thought is what comes before `</think>`, all of the text where that never comes. Calls are JSON between
tags; one that is not leaves the whole text as content. Arguments are read and written again, so their spacing
and escapes are not those that were sampled: a message is no record of its ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen

from .vocabulary import CALL, CALLED, THINK, THOUGHT

BODY = re.compile(f"{CALL}(.*?){CALLED}|{CALL}(.*)", re.DOTALL)


@frozen
class ParsedCall:
    """One tool call: a name and a JSON text."""

    name: str
    arguments: str


@frozen
class ParsedText:
    """The parts; None where there is nothing of a kind."""

    reasoning: str | None
    content: str | None
    calls: tuple[ParsedCall, ...] = ()

    def message(self, call_id: Callable[[int], str]) -> dict[str, Any]:
        """Return the assistant message of a chat answer; `call_id` names each call."""
        calls = [wire_call(call_id(place), call) for place, call in enumerate(self.calls)]
        empty = {"refusal": None, "annotations": None, "audio": None, "function_call": None}
        message = {"role": "assistant", "content": self.content, **empty}
        return {**message, **({"tool_calls": calls} if calls else {}), "reasoning": self.reasoning}


def wire_call(identifier: str, call: ParsedCall) -> dict[str, Any]:
    """Return a call as it stands in a message."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": identifier, "type": "function", "function": function}


def parse(text: str, *, thinking: bool, tools: bool) -> ParsedText:
    """Take a text apart; without `thinking` nothing is a thought, without `tools` nothing is a call.

    >>> parse("<think>a</think>b", thinking=True, tools=False)
    Parsed(reasoning='a', content='b', calls=())
    """
    thought, said = divide(text, final=True) if thinking else ("", text)
    found = _calls(said) if tools and said else ()
    if not found:
        return ParsedText(thought or None, said or (None if thinking else ""))
    before = (said or "").partition(CALL)[0]
    return ParsedText(thought or None, before if before.strip() else None, found)


def divide(text: str, *, final: bool) -> tuple[str, str | None]:
    """Return the thought at the beginning and the text after it, None while the thought goes on.

    A call ends a thought too. What may become a tag is in neither part, unless the text is `final`.

    >>> divide("<think>a</thi", final=False), divide("<think>a</think>b", final=False)
    (('a', None), ('a', 'b'))
    """
    ends = [place for place in (text.find(THOUGHT), text.find(CALL)) if place >= 0]
    if not ends:
        sure = text if final else text[: len(text) - held(text, THINK, THOUGHT, CALL)]
        return sure.replace(THINK, ""), None
    return text[: min(ends)].replace(THINK, ""), text[min(ends) :].removeprefix(THOUGHT)


def held(text: str, *tags: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of a tag.

    >>> held("a <thi", "<think>"), held("a <b", "<think>")
    (4, 0)
    """
    longest = max(len(tag) for tag in tags) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(size < len(tag) and tag.startswith(text[-size:]) for tag in tags):
            return size
    return 0


def _calls(said: str) -> tuple[ParsedCall, ...]:
    """Read every call; none at all where one of them cannot be read."""
    try:
        return tuple(_call(closed or unclosed) for closed, unclosed in BODY.findall(said))
    except (ValueError, TypeError, KeyError):
        return ()


def _call(body: str) -> ParsedCall:
    call = json.loads(body)
    name, arguments = call["name"], json.dumps(call["arguments"], ensure_ascii=False)
    if not isinstance(name, str):
        raise TypeError("the name of a call is a string")
    return ParsedCall(name, arguments)


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
