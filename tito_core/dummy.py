"""Conversations that stand in for the real history, so that a question costs only what is new.

The turn before the seam keeps the shape of the real one, because templates look at it: its tool calls with
their ids and names, whether it has reasoning, whether its content is empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

Plain = dict[str, Any]

USER: Plain = {"role": "user", "content": "Hello."}
SYSTEM: Plain = {"role": "system", "content": "Be brief."}
THOUGHTFUL: Plain = {
    "role": "assistant",
    "content": "It is seven.",
    "reasoning_content": "Three and four.",
    "reasoning": "Three and four.",
}
CALLING: Plain = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "a1b2c3d4e", "type": "function", "function": {"name": "add", "arguments": {"x": 3}}}
    ],
}
RESULT: Plain = {"role": "tool", "tool_call_id": "a1b2c3d4e", "name": "add", "content": "7"}

PLAIN: tuple[Plain, ...] = (USER,)
"""The first context: nothing but a user's message."""
UNLIKE: tuple[tuple[Plain, ...], ...] = (
    (SYSTEM, USER, CALLING, RESULT, THOUGHTFUL, USER),
    (USER, CALLING, RESULT, THOUGHTFUL, USER),
    (SYSTEM, USER, THOUGHTFUL, USER),
    (USER, THOUGHTFUL, USER),
)
"""Contexts as unlike the first as a template allows; the first that renders is used."""


@attrs.frozen
class Form:
    """A way to write the turn before the seam, given what stands for its text."""

    kept: Plain
    """The keys that stay as they are."""
    calls: tuple[Plain, ...] = ()
    """The turn's tool calls; where there are any, the text stands in the arguments of one."""
    place: int = -1
    """Which call holds the text: the last, or the first where a template writes only that."""
    as_object: bool = False
    """Whether arguments are written as an object; some templates take only that, some only text."""

    def write(self, text: str) -> Plain:
        """Return the turn with `text` in its place.

        >>> Form({"role": "assistant"}).write("hi")
        {'role': 'assistant', 'content': 'hi'}
        """
        if not self.calls:
            return {**self.kept, "content": text}
        given: list[Plain] = [{} for _ in self.calls]
        given[self.place] = {"value": text}
        return {**self.kept, "tool_calls": list(map(self._call, self.calls, given))}

    def _call(self, call: Plain, arguments: Plain) -> Plain:
        """Return a call with its own id and name and other arguments."""
        inner = call.get("function")
        said = inner if isinstance(inner, dict) else call
        spelled = arguments if self.as_object else json.dumps(arguments)
        function = {"name": said.get("name"), "arguments": spelled}
        kept: Plain = {key: call[key] for key in ("id", "type") if key in call}
        return {**kept, "function": function} if said is inner else {**kept, **function}


def forms(turn: Mapping[str, Any]) -> list[Form]:
    """Return the ways to write a turn, the likest first.

    >>> [form.calls for form in forms({"role": "assistant", "content": "hi"})]
    [()]
    """
    base: Plain = {"role": "assistant", **_reasoning(turn)}
    calls = turn.get("tool_calls")
    calls = tuple(call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
    spoken = [Form(base)]
    if not calls:
        return spoken
    calling = {**base, **_content(turn)}
    places = (-1, 0) if len(calls) > 1 else (-1,)
    return [Form(calling, calls, place, spell) for place in places for spell in (False, True)] + spoken


def _reasoning(turn: Mapping[str, Any]) -> Plain:
    """Keep whether there is reasoning, under its own names."""
    return {name: "So." for name in ("reasoning", "reasoning_content") if turn.get(name)}


def _content(turn: Mapping[str, Any]) -> Plain:
    """Keep whether there is content: some templates choose by it between text and calls."""
    if "content" not in turn:
        return {}
    return {"content": "Well." if turn["content"] else turn["content"]}
