"""Stand-in conversations: short histories in place of the real one, so that questions stay short.

The turn before the seam keeps the shape of the real one, because templates look at it: its tool calls with
their ids and names, whether it has reasoning, whether its content is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Any

import attrs

from ..message import Message
from ..normalization.canonical import REASONING, function_of, sole_text

Plain = dict[str, Any]
Context = tuple[Plain, ...]
Messages = tuple[Message, ...]

USER: Plain = {"role": "user", "content": "Hello."}
SYSTEM: Plain = {"role": "system", "content": "Be brief."}
ANSWER: Plain = {"role": "assistant", "content": "It is seven."}
THOUGHTFUL: Plain = {**ANSWER, **dict.fromkeys(REASONING, "Three and four.")}
CALLING: Plain = {"role": "assistant", "content": ""}
CONSIDERED: Plain = {**CALLING, **dict.fromkeys(REASONING, "Look it up.")}
OFF, ON = "/no_think /nothink", "/think"
"""Switches that turn reasoning off, and on."""
UNLIKELY = "consult_almanac"
"""A tool that no real turn calls: a template may name a result by an earlier call with its id."""
CALL_ID = "a1b2c3d4e"
"""Nine letters and digits: Mistral's templates take nothing else."""


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


NO_KEY: Any = object()
"""Stands for the id of a call, or of a result, that has no such key."""
Turns = tuple[tuple[Any, ...], ...]
"""Turns of a tool loop, each as the ids of its calls."""


def lookups(
    name: str, x: int, turns: Turns = ((CALL_ID,),), role: str = "tool", *, thought: bool = False
) -> tuple[Context, Context]:
    """Return turns with tool calls, and their results, with the arguments as an object and as text.

    Arguments are texts: some templates join them to texts. `thought` is whether the turns have reasoning.
    """

    def lookup(arguments: Any) -> Context:
        function = {"name": name, "arguments": arguments}
        messages: list[Plain] = []
        for ids in turns:
            calls = [{**_under("id", one), "type": "function", "function": function} for one in ids]
            messages.append({**(CONSIDERED if thought else CALLING), "tool_calls": calls})
            results = ({**_under("tool_call_id", one), "name": name, "content": str(x + 4)} for one in ids)
            messages += ({"role": role, **one} for one in results)
        return tuple(messages)

    return lookup({"x": str(x)}), lookup(json.dumps({"x": str(x)}))


def _under(key: str, call_id: Any) -> Plain:
    return {} if call_id is NO_KEY else {key: call_id}


OF_SYSTEM = ("system", "developer")
CERTIFIED_LOOPS: tuple[tuple[str, ...], ...] = ((), ("system",), ("developer",))
"""What may stand between a tool result and a turn whose case is certified; see `SampledTurn.loop`."""
LAST: dict[str, Context] = {
    "user": (USER,),
    "assistant": (USER, ANSWER),
    "developer": ({"role": "developer", "content": "Be brief."},),
    "system": (SYSTEM,),
}
"""The shortest history that ends with a message of a role; any other role answers a tool call."""


@attrs.frozen
class Contexts:
    """Short histories of three kinds, each in the order in which they are tried.

    Attributes:
        likely: As short as possible.
        rich: As different from those as templates allow, except for their words.
        calls: Those of the rich ones in which tools were called.
    """

    likely: tuple[Context, ...]
    rich: tuple[Context, ...]
    calls: tuple[Context, ...]

    @cached_property
    def unlike(self) -> tuple[Context, ...]:
        """The rich histories with other words, so that they share no text with the likely ones."""
        return tuple(map(_reworded, self.rich))

    @cached_property
    def calling(self) -> tuple[Context, ...]:
        """The unlike histories in which tools were called."""
        return tuple(map(_reworded, self.calls))

    def showing(self, modalities: Sequence[str], first: int = 1) -> tuple[Context, ...]:
        """Return the unlike histories with media in every user message and tool result, `first` in the first.

        Those with media in user messages alone come after them: some templates take none in tool results.
        """
        return tuple(
            _showing(one, modalities, [first, *repeat(1, len(one))], roles)
            for roles in (("user", "tool"), ("user",))
            for one in self.unlike
        )

    def showing_many(self, modality: str, count: int) -> tuple[Context, ...]:
        """Return the unlike histories with `count` media in all: a template may leave some out."""
        return tuple(_showing(one, (modality,), [count], ("user",)) for one in self.unlike)


def contexts(
    role: str,
    turns: Turns = ((CALL_ID,),),
    *,
    opened: bool = False,
    switched: frozenset[str] = frozenset(),
    words: str = OFF,
    name: str = UNLIKELY,
) -> Contexts:
    """Return histories that end with a message of `role`, as the real one does before the turn.

    Some templates remember that they are inside a tool loop, or merge two neighbours of one role.
    `turns` are earlier tool calls of the tool `name`: new results may answer those. `opened` says whether the
    likely ones begin with a system text: without one, templates look for it further on. `switched` are
    the roles of earlier messages that may have a switch: the rich ones have `words` in messages of those.

    >>> [message["role"] for message in contexts("tool").likely[0]]
    ['user', 'assistant', 'tool']
    """
    return _contexts(role, turns, opened, switched, words, name)


@lru_cache(maxsize=64)  # they depend on nothing else, and making them takes up to 35 us of each stitch
def _contexts(
    role: str, turns: Turns, opened: bool, switched: frozenset[str], words: str, name: str
) -> Contexts:
    system, user = _opening(switched, words)
    pasts = _pasts(*lookups(name, 25, turns), system, user)
    opening = (SYSTEM,) * (opened and role not in OF_SYSTEM)
    if role not in LAST:
        last = lookups(name, 25, turns, role)
        # A template may remember that a turn of the loop had reasoning; others take none beside calls.
        kinds = ((True, (*pasts.calling, *pasts.plain)), (False, pasts.plain))
        rich = tuple(
            (*past, USER, *one, *other)
            for thought, befores in kinds
            for one, other in zip(lookups(name, 25, turns, role, thought=thought), last, strict=True)
            for past in befores
        )
        likely = tuple((*opening, USER, *lookup) for lookup in lookups("add", 3, role=role))
        return Contexts(likely, rich, rich)
    end = LAST[role]
    ends = (end, (USER, *end)) if role in OF_SYSTEM else (end,)  # roles may have to alternate
    return Contexts(
        likely=tuple((*opening, *one) for one in ends),
        rich=tuple((*past, *one) for one in ends for past in (*pasts.calling, *pasts.plain)),
        calls=tuple((*past, *one) for one in ends for past in pasts.calling),
    )


@lru_cache(maxsize=64)
def in_loop(
    run: tuple[str, ...], turns: Turns = ((CALL_ID,),), switched: frozenset[str] = frozenset()
) -> tuple[Context, ...]:
    """Return unlike histories in whose last tool loop messages of the roles `run` stand after the results."""
    pasts = _pasts(*lookups(UNLIKELY, 25, turns), *_opening(switched, OFF))
    end = tuple(LAST[role][-1] for role in run)
    return tuple(
        _reworded((*past, USER, *lookup, *end))
        for thought in (True, False)
        for lookup in lookups(UNLIKELY, 25, turns, thought=thought)
        for past in (*pasts.calling, *pasts.plain)
    )


def _opening(switched: frozenset[str], words: str) -> tuple[Plain, Plain]:
    system, user = (_switching(one, words) if one["role"] in switched else one for one in (SYSTEM, USER))
    return system, user


def akin_histories(role: str, history: Context) -> tuple[Context, ...]:
    """Return short histories with these messages of the real one that end with a message of `role`.

    Templates look for switches in system and user texts, and for whether there is a user message at all.

    >>> akin_histories("user", ({"role": "user", "content": "x"},))
    (({'role': 'user', 'content': 'x'},),)
    """
    if role not in LAST:
        return tuple((*history, *lookup) for lookup in lookups("add", 3, role=role))
    ends = history[-1:] and history[-1]["role"] == role
    return (history if ends or role == "user" else (*history, LAST[role][-1]),)


SWITCHED: tuple[Context, ...] = tuple(
    ({"role": "system", "content": f"Be brief. {system}"}, {"role": "user", "content": f"Hello. {user}"})
    for system, user in (("/no_think", "/nothink"), ("/think", "/think"))
)
"""Histories with the switches that templates look for, for a turn whose real history is unknown."""


def _reworded(context: Context) -> Context:
    """Return a history in which every message has another text."""
    return tuple(
        {**message, "content": f"Now: {message['content']}"} if message["content"] else message
        for message in context
    )


def _showing(
    history: Context, modalities: Sequence[str], counts: Sequence[int], roles: Sequence[str]
) -> Context:
    """Return a history with so many media of each modality in its first messages of these roles."""
    shown = iter(counts)
    return tuple(
        _with_media(message, modalities, next(shown, 0)) if message["role"] in roles else message
        for message in history
    )


def _with_media(message: Plain, modalities: Sequence[str], count: int) -> Plain:
    media = [{"type": name} for name in modalities] * count
    return (
        {**message, "content": [*media, {"type": "text", "text": message["content"]}]} if media else message
    )


def _switching(message: Plain, words: str) -> Plain:
    return {**message, "content": f"{message['content']} {words}"}


@attrs.frozen
class _Pasts:
    """What may stand before the last messages of a history, with tool calls and without."""

    calling: tuple[Context, ...]
    plain: tuple[Context, ...]


def _pasts(lookup: Context, as_text: Context, system: Plain, user: Plain) -> _Pasts:
    calls = ((system, user, *lookup), (system, user, *as_text), (user, *lookup), (user, *as_text))
    return _Pasts(
        tuple((*past, THOUGHTFUL) for past in calls), ((system, user, THOUGHTFUL), (user, THOUGHTFUL))
    )


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
    ways = [(one, place) for place in (-1, 0)[:count] for one in turns]
    return [TurnForm(one, place, spell) for one, place in (*ways, (turn, None)) for spell in (False, True)]


def calls_of(turn: Plain) -> list[Plain]:
    """Return the tool calls that are objects."""
    calls = turn.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
