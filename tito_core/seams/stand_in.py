"""Conversations that stand in for the real history, so that a question costs only what is new.

The turn before the seam keeps the shape of the real one, because templates look at it: its tool calls with
their ids and names, whether it has reasoning, whether its content is empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import attrs

from ..errors import InputError
from ..message import copied
from ..normalization.canonical import REASONING

Plain = dict[str, Any]
Context = tuple[Plain, ...]

USER: Plain = {"role": "user", "content": "Hello."}
SYSTEM: Plain = {"role": "system", "content": "Be brief."}
ANSWER: Plain = {"role": "assistant", "content": "It is seven."}
THOUGHTFUL: Plain = {
    **ANSWER,
    **dict.fromkeys(REASONING, "Three and four."),
}
CALL_ID = "a1b2c3d4e"
"""Nine letters and digits: some templates take nothing else."""


def _lookups(name: str, call_id: str, x: int) -> tuple[Context, Context]:
    """Return a tool call and its result, the arguments as an object and as text."""
    result = {"role": "tool", "tool_call_id": call_id, "name": name, "content": str(x + 4)}
    spelled = ({"x": x}, json.dumps({"x": x}))
    functions = ({"name": name, "arguments": arguments} for arguments in spelled)
    calls = ({"id": call_id, "type": "function", "function": function} for function in functions)
    one, two = ({"role": "assistant", "content": "", "tool_calls": [call]} for call in calls)
    return (one, result), (two, result)


LAST: dict[str, Context] = {
    "assistant": (USER, ANSWER),
    "developer": ({"role": "developer", "content": "Be brief."},),
    "system": (SYSTEM,),
}
"""Histories that end with a message of a role; one that ends with the user where none is named."""


@attrs.frozen
class Contexts:
    """Short histories of two kinds, each in the order in which they are tried."""

    likely: tuple[Context, ...]
    """As short as can be."""
    histories: tuple[Context, ...]
    """As different from those as a template allows, but for their words."""

    @property
    def unlike(self) -> Iterator[Context]:
        """As different from those as a template allows; no text stands in both."""
        return map(_retold, self.histories)


def contexts(role: str, call_id: str = CALL_ID) -> Contexts:
    """Return histories that end with a message of this role, as the real one does before the turn.

    Some templates remember that they are inside a tool loop, or treat two neighbours of one role as one.
    `call_id` is what an earlier tool call is named: a result may answer that one.

    >>> [message["role"] for message in contexts("tool").likely[0]]
    ['user', 'assistant', 'tool']
    """
    lookups = _lookups("find", call_id, 25)
    pasts = _pasts(*lookups)
    if role == "tool":
        return Contexts(
            likely=tuple((USER, *lookup) for lookup in _lookups("add", CALL_ID, 3)),
            histories=tuple((*past, USER, *lookup, *lookup) for lookup in lookups for past in pasts),
        )
    end = LAST.get(role, (USER,))
    return Contexts(likely=(end,), histories=tuple((*past, *end) for past in pasts))


def akin_histories(role: str, history: Context) -> tuple[Context, ...]:
    """Return short histories that hold these messages of the real one and end with a message of this role.

    Templates look for switches in system and user texts, and for whether there is a user at all.

    >>> akin_histories("user", ({"role": "user", "content": "x"},))
    (({'role': 'user', 'content': 'x'},),)
    """
    if role == "tool":
        return tuple((*history, *lookup) for lookup in _lookups("add", CALL_ID, 3))
    ends = history[-1:] and history[-1]["role"] == role
    return (history if ends or role not in LAST else (*history, LAST[role][-1]),)


def _retold(context: Context) -> Context:
    """Return a history in which every message says something else."""
    return tuple(
        {**message, "content": f"Now: {message['content']}"} if message["content"] else message
        for message in context
    )


def _pasts(lookup: Context, as_text: Context) -> tuple[Context, ...]:
    """Return what may have gone before, the richest first."""
    return (
        (SYSTEM, USER, *lookup, THOUGHTFUL),
        (SYSTEM, USER, *as_text, THOUGHTFUL),
        (USER, *lookup, THOUGHTFUL),
        (SYSTEM, USER, THOUGHTFUL),
        (USER, THOUGHTFUL),
    )


WORDS = ("So.", "Perhaps 12 of them.")
"""What stands for everything that a turn says beside the text to locate; the second is for unlike contexts,
so that a template that repeats or counts such words is found out."""


WRITTEN = frozenset(("role", "content", *REASONING, "tool_calls"))
"""The keys of a turn that stand-ins have words of their own for; others, such as a name, stay as they are."""


@attrs.frozen
class TurnForm:
    """A way to write the turn before the seam, given the text to locate."""

    turn: Plain
    """The turn as the prompt restates it; its shape is kept and its words are not."""
    place: int | None = None
    """Which call's arguments hold the text; None where the content does."""
    as_object: bool = False
    """Whether arguments are written as an object; some templates take only that, some only text."""

    def write(self, text: str, words: str = WORDS[0]) -> Plain:
        """Return the turn with `text` in its place.

        >>> TurnForm({"role": "assistant", "content": "x"}).write("hi")
        {'role': 'assistant', 'content': 'hi'}
        """
        made = {name: value for name, value in self.turn.items() if name not in WRITTEN}
        made["role"] = "assistant"
        made |= {name: words for name in REASONING if self.turn.get(name)}
        if self.place is None:
            made["content"] = text
        elif "content" in self.turn:
            made["content"] = words if self.turn["content"] else self.turn["content"]
        if calls_of(self.turn):
            made["tool_calls"] = self._calls(text, words)
        return made

    def within(self, text: str) -> Plain:
        """Return the turn with `text` in its place, and all else that it says as it is.

        >>> TurnForm({"role": "assistant", "content": "x", "reasoning": "y"}).within("hi")
        {'role': 'assistant', 'content': 'hi', 'reasoning': 'y'}
        """
        made = dict(self.turn)
        if self.place is None:
            made["content"] = text
        if calls_of(self.turn):
            made["tool_calls"] = self._calls(text, None)
        return made

    def _calls(self, text: str, words: str | None) -> list[Plain]:
        """Return the calls with `text` in its place; what others say is `words`, their own without it."""
        calls = calls_of(self.turn)
        given = [_arguments(call) if words is None else {"value": words} for call in calls]
        if self.place is not None:
            given[self.place] = {"value": text}
        return list(map(self._call, calls, given))

    def _call(self, call: Plain, arguments: Any) -> Plain:
        """Return a call with its own id and name and other arguments."""
        inner = call.get("function")
        said = inner if isinstance(inner, dict) else call
        spelled = arguments if self.as_object or isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": said.get("name"), "arguments": spelled}
        kept: Plain = {key: call[key] for key in ("id", "type") if key in call}
        return {**kept, "function": function} if said is inner else {**kept, **function}


def _arguments(call: Plain) -> Any:
    """Return a call's arguments as an object, or as they are where they spell none."""
    inner = call.get("function")
    given = (inner if isinstance(inner, dict) else call).get("arguments")
    if not isinstance(given, str):
        return given
    try:
        spelled = json.loads(given)
        copied([{"role": "assistant", "tool_calls": [{"function": {"arguments": spelled}}]}], "arguments")
    except (ValueError, RecursionError, InputError):  # no JSON, or nested deeper than a message may be
        return given
    return spelled if isinstance(spelled, dict) else given


def forms(turn: Plain) -> list[TurnForm]:
    """Return the ways to write a turn, the likest first.

    With calls the text stands in the arguments of the last, or of the first where a template writes only
    that, or in the content where it writes none.

    >>> [form.place for form in forms({"role": "assistant", "content": "hi"})]
    [None]
    """
    count = len(calls_of(turn))
    if not count:
        return [TurnForm(turn)]
    places = (-1, 0, None) if count > 1 else (-1, None)
    return [TurnForm(turn, place, spell) for place in places for spell in (False, True)]


def calls_of(turn: Plain) -> list[Plain]:
    """Return the tool calls that are objects."""
    calls = turn.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
