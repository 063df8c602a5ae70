"""Ways to write the turn before the seam, with a text to locate in it.

It keeps the shape of the real one, because templates look at it: its tool calls with their ids and names,
whether it has reasoning, whether its content is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from ..message import Message
from ..normalization.canonical import REASONING, function_of, sole_text
from .history import CALL_ID, UNLIKELY

Plain = dict[str, Any]
Messages = tuple[Message, ...]

WORD = re.compile(r"[\w.:-]{1,128}", re.ASCII)
"""Usual names and ids of calls. No template's close consists of these characters alone."""


def naming(call: Plain) -> tuple[Any, Any]:
    """Return the name of the called tool, and the id of the call."""
    return function_of(call).get("name"), call.get("id")


def plainly_named(turn: Plain) -> Plain:
    """Return a turn with usual words in place of tools' names and calls' ids that are not usual.

    >>> plainly_named({"tool_calls": [{"id": "</s>", "function": {"name": "f"}}]})
    {'tool_calls': [{'id': 'a1b2c3d4e', 'function': {'name': 'f'}}]}
    """
    calls = calls_of(turn)
    usual = list(map(_plainly_named, calls))
    return turn if usual == calls else {**turn, "tool_calls": usual}


def _plainly_named(call: Plain) -> Plain:
    name, call_id = (
        other if isinstance(word, str) and not WORD.fullmatch(word) else word
        for word, other in zip(naming(call), (UNLIKELY, CALL_ID), strict=True)
    )
    function = {**function_of(call), "name": name}
    named = {**call, "function": function} if "function" in call else function
    return {**named, "id": call_id} if "id" in call else named


WORDS = ("So.", "Perhaps 12 of them.")
"""Stand-ins for everything in a turn beside the text to locate.

The second is used in unlike contexts, so that a template which repeats or counts words is detected.
"""

WRITTEN = frozenset(("role", "content", *REASONING, "tool_calls"))
"""The keys of a turn that are replaced by stand-ins; others, such as a name, are kept."""


@attrs.frozen
class TurnForm:
    """A way to write the turn before the seam with a text to locate in it.

    Attributes:
        turn: The turn as the prompt restates it; its shape is kept, its words are not.
        place: Index of the call whose arguments hold the text; None if the content does.
        as_object: Whether arguments are an object; some templates take only that, some only text.
    """

    turn: Plain
    place: int | None = None
    as_object: bool = False

    def write(self, text: str, words: str = WORDS[0]) -> Plain:
        """Return the turn with `text` in its place and `words` in place of everything else.

        >>> TurnForm({"role": "assistant", "content": "x"}).write("hi")
        {'role': 'assistant', 'content': 'hi'}
        """
        turn = {name: value for name, value in self.turn.items() if name not in WRITTEN}
        turn["role"] = "assistant"
        # Qwen3, GLM-4.5, Nemotron 3 and Kimi-K2 read `reasoning_content`.
        turn |= {name: words for name in REASONING if self.turn.get(name)}
        if self.place is None:
            turn["content"] = _said(self.turn.get("content"), text, words)
        elif "content" in self.turn:
            turn["content"] = (
                _said(self.turn["content"], words, words) if self.turn["content"] else self.turn["content"]
            )
        calls = calls_of(self.turn)
        if calls:
            turn["tool_calls"] = self.calls(text, [{"value": words}] * len(calls))
        return turn

    def silent(self) -> Plain:
        """Return a turn without calls that says no more than it does: its content is written as it is."""
        said = {"content": self.turn["content"]} if "content" in self.turn else {}
        return {**{key: value for key, value in self.write("").items() if key != "content"}, **said}

    def within(self, past: Sequence[Message], following: Sequence[Message] = ()) -> Callable[[str], Messages]:
        """Return a function from a text to the conversation with it in the turn."""
        return lambda text: (*past, self.write(text), *following)

    def calls(self, text: str, others: Sequence[Any]) -> list[Plain]:
        """Return the calls with `text` in its place, and `others` as the arguments of the other calls."""
        arguments = list(others)
        if self.place is not None:
            arguments[self.place] = {"value": text}
        return list(map(self._call, calls_of(self.turn), arguments))

    def _call(self, call: Plain, arguments: Any) -> Plain:
        """Return a call with its own id and name, and with other arguments."""
        # GLM-4.5, Qwen3-Coder, Qwen3.5 and Nemotron 3 loop over an object; DeepSeek-V3 and R1 join a text.
        written = arguments if self.as_object or isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": function_of(call).get("name"), "arguments": written}
        kept: Plain = {key: call[key] for key in ("id", "type") if key in call}
        return {**kept, **function} if function_of(call) is call else {**kept, "function": function}


def _said(content: Any, text: str, words: str) -> Any:
    """Return `text` in the form of `content`: in the last of its text parts, and `words` in the others."""
    parts = sole_text(content)
    is_list = isinstance(parts, list) and all(isinstance(part, dict) for part in parts)
    places = [i for i, part in enumerate(parts) if "text" in part] if is_list else []
    if not places:
        return text
    said = dict.fromkeys(places, words) | {places[-1]: text}
    return [{**part, "text": said[i]} if i in said else part for i, part in enumerate(parts)]


def forms(turn: Plain) -> list[TurnForm]:
    """Return the ways to write a turn, the most likely first.

    With tool calls the text stands in the arguments of the last one. It stands in those of the first if a
    template writes only that, and in the content if it writes no calls. A call without a content is written
    with an empty one, too: DeepSeek-V3.1, QwQ-32B, Devstral and Qwen3's first template take nothing else.

    >>> [form.place for form in forms({"role": "assistant", "content": "hi"})]
    [None]
    """
    count = len(calls_of(turn))
    if not count:
        return [TurnForm(turn)]
    silent = turn.get("content") is None
    turns = (turn, {**turn, "content": ""}) if silent else (turn,)
    # gpt-oss writes the first call alone; Granite 3.3, Llama 3.0 and SmolLM3 none.
    ways = [(one, place) for place in (-1, 0)[:count] for one in turns]
    return [TurnForm(one, place, spell) for one, place in (*ways, (turn, None)) for spell in (False, True)]


def calls_of(turn: Plain) -> list[Plain]:
    """Return the tool calls that are objects."""
    calls = turn.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
