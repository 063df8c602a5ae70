"""Parse sampled text into reasoning, content and tool calls, at once or delta by delta.

Reasoning is what comes before `</think>`; all of the text where that never comes. Tool calls are JSON between
tags; if one of them is not valid, the whole text is content. Arguments are parsed and written again, as the
engine does: their spacing and escapes are not those that were sampled, so that a message does not determine
its ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from attrs import define, field, frozen

from tito_io.engines.replies.hermes import writable

from .vocabulary import (
    END_OF_TEXT,
    END_OF_TURN,
    END_THINK,
    END_TOOL_CALL,
    START_OF_TURN,
    THINK,
    TOOL_CALL,
    vocabulary,
)

CALL_BODY = re.compile(f"{TOOL_CALL}(.*?){END_TOOL_CALL}|{TOOL_CALL}(.*)", re.DOTALL)


@frozen
class ParsedCall:
    """One tool call: the function's name, and its arguments as JSON text. Both are `writable`."""

    name: str = field(converter=writable)
    arguments: str = field(converter=writable)


@frozen
class ParsedText:
    """Reasoning, content and tool calls of a turn; None where the turn has none."""

    reasoning: str | None
    content: str | None
    calls: tuple[ParsedCall, ...] = ()

    def message(self, call_id: Callable[[int], str]) -> dict[str, Any]:
        """Return the assistant message of a chat answer; `call_id` names each call."""
        empty = {"refusal": None, "annotations": None, "audio": None, "function_call": None}
        message: dict[str, Any] = {"role": "assistant", "content": self.content, **empty}
        if self.calls:
            functions = [{"name": call.name, "arguments": call.arguments} for call in self.calls]
            message["tool_calls"] = [
                {"id": call_id(place), "type": "function", "function": function}
                for place, function in enumerate(functions)
            ]
        return {**message, "reasoning": self.reasoning}


def parse(text: str, *, thinking: bool, tools: bool) -> ParsedText:
    """Parse a finished text. Without `thinking` nothing is reasoning, without `tools` nothing is a call.

    >>> parse("<think>a</think>b", thinking=True, tools=False)
    ParsedText(reasoning='a', content='b', calls=())
    """
    reasoning, content = split_reasoning(text, final=True) if thinking else ("", text)
    calls = _calls(content) if tools and content else ()
    if not calls:
        # The parser of the real server leaves content null after reasoning, and empty where it never runs.
        return ParsedText(reasoning or None, content or (None if thinking else ""))
    before = (content or "").partition(TOOL_CALL)[0]
    return ParsedText(reasoning or None, before if before.strip() else None, calls)


def split_reasoning(text: str, *, final: bool) -> tuple[str, str | None]:
    """Return the reasoning and the text after it, None while the reasoning goes on. A tool call ends it, too.

    Unless the text is `final`, its last characters are in neither part where they may become a tag.

    >>> split_reasoning("<think>a</thi", final=False), split_reasoning("<think>a</think>b", final=False)
    (('a', None), ('a', 'b'))
    """
    ends = [place for place in (text.find(END_THINK), text.find(TOOL_CALL)) if place >= 0]
    if not ends:
        certain = text if final else text[: len(text) - tag_begun(text, THINK, END_THINK, TOOL_CALL)]
        return certain.replace(THINK, ""), None
    return text[: min(ends)].replace(THINK, ""), text[min(ends) :].removeprefix(END_THINK)


def tag_begun(text: str, *tags: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of a tag.

    >>> tag_begun("a <thi", "<think>"), tag_begun("a <b", "<think>")
    (4, 0)
    """
    longest = max(len(tag) for tag in tags) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(size < len(tag) and tag.startswith(text[-size:]) for tag in tags):
            return size
    return 0


def _calls(content: str) -> tuple[ParsedCall, ...]:
    """Parse every tool call; return none at all where one of them is not valid."""
    try:
        calls = [json.loads(closed or unclosed) for closed, unclosed in CALL_BODY.findall(content)]
        found = [(call["name"], json.dumps(call["arguments"], ensure_ascii=False)) for call in calls]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
    named = all(isinstance(name, str) for name, _ in found)
    return tuple(ParsedCall(name, arguments) for name, arguments in found) if named else ()


NAME = re.compile(r'"name"\s*:\s*"([^"]+)"')
ARGUMENTS = re.compile(r'"arguments"\s*:\s*')


@define
class DeltaParser:
    """Parses one streamed turn: text in, deltas of the chat route out.

    Unlike `parse` it passes a tool call on while that is sampled. It therefore shows malformed calls, and
    arguments exactly as they were sampled; the engine's own streams differ from its whole answers in the same
    way.
    """

    thinking: bool
    tools: bool
    call_id: Callable[[int], str]
    _text: str = field(default="", init=False)
    _reasoning_sent: int = field(default=0, init=False)
    _content_sent: int = field(default=0, init=False)
    _arguments_sent: list[int] = field(factory=list, init=False)
    """How many characters of each call's arguments were passed on."""

    def feed(self, text: str, *, final: bool) -> dict[str, Any]:
        """Add text; return the delta that it makes certain, which may be empty."""
        self._text += text
        reasoning, content = split_reasoning(self._text, final=final) if self.thinking else ("", self._text)
        delta = {} if content is None else self._content(content, final=final)
        if len(reasoning) > self._reasoning_sent:
            delta["reasoning"] = reasoning[self._reasoning_sent :]
            self._reasoning_sent = len(reasoning)
        if content is not None and self.tools and (calls := self._calls(content)):
            delta = {"content": None, **delta, "tool_calls": calls}
        return delta

    def _content(self, content: str, *, final: bool) -> dict[str, Any]:
        """Return the new content that is certain to stand before any tool call."""
        certain = content
        if self.tools:
            before, tag, _ = content.partition(TOOL_CALL)
            certain = before if tag or final else before[: len(before) - tag_begun(before, TOOL_CALL)]
        new, self._content_sent = certain[self._content_sent :], max(len(certain), self._content_sent)
        return {"content": new} if new else {}

    def _calls(self, content: str) -> list[dict[str, Any]]:
        """Return what is new of each tool call, up to the first whose name is not known yet."""
        new: list[dict[str, Any]] = []
        for place, (body, closed) in enumerate(_call_bodies(content)):
            name = NAME.search(body)
            if name is None:
                break
            if place == len(self._arguments_sent):
                self._arguments_sent.append(0)
                head = {"id": self.call_id(place), "type": "function", "index": place}
                new.append({**head, "function": {"name": name.group(1)}})
            begin = ARGUMENTS.search(body)
            arguments = "" if begin is None else body[begin.end() :]
            if closed:  # the last brace closes the call around the arguments
                arguments = arguments.rstrip().removesuffix("}").rstrip()
            if more := arguments[self._arguments_sent[place] :]:
                new.append({"index": place, "function": {"arguments": more}})
            self._arguments_sent[place] = len(arguments)
        return new


def _call_bodies(content: str) -> Iterator[tuple[str, bool]]:
    """Yield the text of every tool call so far, and whether it is complete."""
    _, tag, rest = content.partition(TOOL_CALL)
    while tag:
        body, closed, after = rest.partition(END_TOOL_CALL)
        certain = (body if closed else body[: len(body) - tag_begun(body, END_TOOL_CALL)]).strip()
        whole = bool(closed)
        with suppress(ValueError, RecursionError):
            json.loads(certain)
            whole = True
        yield certain, whole
        _, tag, rest = after.partition(TOOL_CALL)


def reasoning_closed(prompt: Sequence[int]) -> bool:
    """Tell whether the turn that the prompt leaves open is past its reasoning.

    Only a stream asks. As the engine's parser does, a whole answer takes every reply to begin with reasoning
    where thinking is on.
    """
    words = vocabulary()
    closing = {words.id(END_THINK), words.id(TOOL_CALL)}
    opening = {words.id(THINK), words.id(START_OF_TURN), words.id(END_OF_TURN)}
    return next((one for one in reversed(prompt) if one in closing | opening), None) in closing


def reasoning_tokens(ids: Sequence[int], *, thinking: bool) -> int:
    """Return how many ids are reasoning: those before `</think>`, without the tags."""
    words = vocabulary()
    ends = {words.id(token) for token in (END_THINK, TOOL_CALL, END_OF_TURN, END_OF_TEXT)}
    count = 0
    for identifier in ids if thinking else ():
        if identifier in ends:
            break
        count += identifier != words.id(THINK)
    return count
