"""Stand-in histories: short conversations that replace the messages before a turn.

A history is written in several styles, because templates reject what they do not know: a system text,
arguments as text, reasoning beside calls. The first that the template takes counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain, product, repeat
from typing import Any

import attrs

from ..normalization.canonical import REASONING

Plain = dict[str, Any]
Context = tuple[Plain, ...]
Turns = tuple[tuple[Any, ...], ...]
"""Turns of a tool loop, each as the ids of its calls."""

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
# Mistral's templates raise an exception for any other length.
CALL_ID = "a1b2c3d4e"
"""Nine letters and digits: Mistral's templates take nothing else."""
NO_KEY: Any = object()
"""Stands for the id of a call, or of a result, that has no such key."""
OF_SYSTEM = ("system", "developer")
LAST: dict[str, Context] = {
    "user": (USER,),
    "assistant": (USER, ANSWER),
    "developer": ({"role": "developer", "content": "Be brief."},),
    "system": (SYSTEM,),
}
"""The shortest history that ends with a message of a role; any other role answers a tool call."""


@attrs.frozen
class Style:
    """How a history is written: as much as templates disagree on.

    Attributes:
        other: Whether its last messages are written in the other of two ways: calls without reasoning, as
            some templates take none beside calls; no question before a system text that ends it.
        looped: Whether a tool loop stands before its last question.
        system: Whether it begins with a system text.
        as_object: Whether arguments of calls are an object, else their JSON.
    """

    other: bool
    looped: bool
    system: bool
    as_object: bool


STYLES = tuple(Style(*ways) for ways in product((False, True), *[(True, False)] * 3))
"""The styles in the order in which they are tried, the richest first."""


@attrs.frozen(kw_only=True)
class Past:
    """The content of a stand-in history, in any style.

    Attributes:
        role: The role of its last message.
        loop: The roles of messages between the last tool result and the turn.
        calls: The ids of earlier tool calls.
        tool: The tool that they call.
        called: Whether only histories count in which it is called.
        words: Words that earlier messages of the roles `saying` say, too.
        twice: Whether they say them at the beginning and at the end.
        media: What its first user message shows `shown` times.
        shown: How often.
        more: Whether its later user messages and tool results show it, too.
        aside: Whether tool results show none: some templates take media in user messages alone.
    """

    role: str = "user"
    loop: tuple[str, ...] = ()
    calls: Turns = ((CALL_ID,),)
    tool: str = UNLIKELY
    called: bool = False
    words: str = OFF
    saying: frozenset[str] = frozenset()
    twice: bool = False
    media: tuple[str, ...] = ()
    shown: int = 1
    more: bool = True
    aside: bool = False

    @property
    def histories(self) -> tuple[Context | None, ...]:
        """It in each of `STYLES`; None where that is no other than an earlier one."""
        return _histories(self)


@lru_cache(maxsize=128)  # they depend on nothing else, and making them takes as long as asking about them
def _histories(past: Past) -> tuple[Context | None, ...]:
    found: list[Context | None] = []
    for style in STYLES:
        history = tuple(_changed(past, _written(past, style)))
        calls = not past.called or any("tool_calls" in message for message in history)
        found.append(history if calls and history not in found else None)
    return tuple(found)


def _written(past: Past, style: Style) -> Context:
    """Return a history in one style. Roles that neither speak nor ask answer a tool call."""
    lookup = partial(lookups, past.tool, 25, past.calls, as_object=style.as_object)
    before = (*(SYSTEM,) * style.system, USER, *lookup() * style.looped, THOUGHTFUL)
    # Llama 3 and Mistral know results by other roles (`ipython`, `tool_results`), which end a loop, too.
    if past.loop or past.role not in LAST:
        # A template may remember that a turn of the loop had reasoning; the last one has none.
        looped = lookup("tool" if past.loop else past.role, thought=not style.other)
        again = () if past.loop else lookup(past.role)
        return (*before, USER, *looped, *again, *(LAST[role][-1] for role in past.loop))
    # Mistral's, Gemma's and Llama 2's templates demand that users and assistants alternate.
    asked = (USER,) * (not style.other and past.role in OF_SYSTEM)
    return (*before, *asked, *LAST[past.role])


def _changed(past: Past, history: Context) -> Iterator[Plain]:
    """Yield the messages with other texts than the shortest histories have, and with words and media."""
    first, *others = [place for place, one in enumerate(history) if one["role"] == "user"]
    last = others[-1] if others else first + 1  # the last question is that of the real history, or another
    counts = chain((past.shown,), repeat(int(past.more)))
    for place, message in enumerate(history):
        role = message["role"] if message["role"] in LAST else "tool"
        content = f"Now: {message['content']}" if message["content"] else ""
        says = role in past.saying and (content or role != "assistant")  # calls may stand beside no content
        if says and (place < last or role == "tool"):
            content = f"{f'{past.words} ' * past.twice}{content} {past.words}"
        shows = past.media and role in (("user",) if past.aside else ("user", "tool"))
        media = [{"type": name} for name in past.media * (next(counts) if shows else 0)]
        yield {**message, "content": [*media, {"type": "text", "text": content}] if media else content}


def lookups(
    name: str,
    x: int,
    turns: Turns = ((CALL_ID,),),
    role: str = "tool",
    *,
    as_object: bool = True,
    thought: bool = False,
) -> Context:
    """Return turns with calls of the tool `name`, and their results.

    Arguments are texts: some templates join them to texts. `thought` is whether the turns have reasoning.
    """
    arguments: Any = {"x": str(x)}
    function = {"name": name, "arguments": arguments if as_object else json.dumps(arguments)}
    messages: list[Plain] = []
    for ids in turns:
        calls = [{**_under("id", one), "type": "function", "function": function} for one in ids]
        messages.append({**(CONSIDERED if thought else CALLING), "tool_calls": calls})
        results = ({**_under("tool_call_id", one), "name": name, "content": str(x + 4)} for one in ids)
        messages += ({"role": role, **one} for one in results)
    return tuple(messages)


def _under(key: str, call_id: Any) -> Plain:
    return {} if call_id is NO_KEY else {key: call_id}


def shortest(role: str, *, opened: bool = False) -> tuple[Context, ...]:
    """Return the shortest histories that end with a message of `role`, in the order in which they are tried.

    `opened` says whether they begin with a system text: without one, templates look for it further on.

    >>> [message["role"] for message in shortest("tool")[0]]
    ['user', 'assistant', 'tool']
    """
    opening = (SYSTEM,) * (opened and role not in OF_SYSTEM)
    if role not in LAST:
        ends = [(USER, *lookups("add", 3, role=role, as_object=one)) for one in (True, False)]
    else:
        ends = [LAST[role], *[(USER, *LAST[role])] * (role in OF_SYSTEM)]  # roles may have to alternate
    return tuple((*opening, *end) for end in ends)


def akin_histories(role: str, history: Context, *, called: bool = False) -> tuple[Context, ...]:
    """Return short histories with these messages of the real one that end with a message of `role`.

    Templates look for switches in system and user texts, and for whether there is a user message at all. With
    `called`, an earlier turn called a tool in those that are tried first.

    >>> akin_histories("user", ({"role": "user", "content": "x"},))
    (({'role': 'user', 'content': 'x'},),)
    """
    ways = [_ended(role, _after_calls(history, one), one) for one in (False, True)] if called else []
    return (*ways, *(_ended(role, history, one) for one in (True, False)[: 1 + (role not in LAST)]))


def _after_calls(history: Context, as_object: bool) -> Context:
    """Return the history with an earlier turn that called a tool before its last message."""
    return (*history[:-1], USER, *lookups("add", 3, as_object=as_object), ANSWER, *(history[-1:] or (USER,)))


def _ended(role: str, history: Context, as_object: bool) -> Context:
    """Return the history with a message of `role` at its end."""
    if role not in LAST:
        return (*history, *lookups("add", 3, role=role, as_object=as_object))
    ends = history[-1:] and history[-1]["role"] == role
    return history if ends or role == "user" else (*history, LAST[role][-1])


SWITCHED: tuple[Context, ...] = tuple(
    ({"role": "system", "content": f"Be brief. {system}"}, {"role": "user", "content": f"Hello. {user}"})
    for system, user in (("/no_think", "/nothink"), ("/think", "/think"))
)
"""Histories with the switches that templates look for, for a turn whose real history is unknown."""
