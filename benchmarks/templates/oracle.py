"""The oracle: what a template writes after the sampled turn of a real conversation, read off whole renders.

It shares no code with the kernel and asks in no stand-in conversation. The real conversation is rendered
whole, and again with unlike words in the turn. The turn's text is over where its last word stands, and what
follows must be the same for all words. A stop is the first of the model's stops in that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs

from benchmarks.templates.shapes import REASONING, Conversation
from tito_core import TemplateRefused

Write = Callable[..., str]
"""Renders messages; `speaking` says whether the model speaks next. Raises `TemplateRefused`."""
WORDS = ("Quartz", "No. 7041", "Is it so?")
"""Unlike words that the turn may say: they end with a letter, a digit and a mark."""
SHOWN = 48
"""Characters of a changed prompt that are shown."""


@attrs.frozen
class Unclear:
    """A conversation in which the oracle cannot see where the turn is over.

    Attributes:
        why: What was seen.
    """

    why: str


@attrs.frozen
class Truth:
    """What a template writes after the turn.

    Attributes:
        before: The text up to the end of the turn's own words.
        after: The text after them: the rest of a call, the close, the new messages, the generation prompt.
        lost: The role of a new message that does not stand there; None if all do.
        calls: How many of the turn's calls the template writes.
        fresh: Where in `after` the first new message may begin at the latest.
    """

    before: str
    after: str
    lost: str | None
    calls: int
    fresh: int


def truth(write: Write, conversation: Conversation) -> Truth | Unclear:
    """Return what follows the turn in the real conversation; raises `TemplateRefused`."""
    rendered = write(conversation.prompt())
    place = _over(rendered, conversation.marks(conversation.text))
    if isinstance(place, Unclear):
        return place
    after = rendered[place:]
    for words in WORDS:
        other = write(conversation.prompt(words))
        there = _over(other, conversation.marks(words))
        if isinstance(there, Unclear):
            return there
        if other[there:] != after:
            return Unclear("what follows depends on what the turn says")
    said = [message["content"] for message in conversation.environment]
    roles = [message["role"] for message in conversation.environment]
    lost = next((role for role, text in zip(roles, said, strict=True) if text not in after), None)
    marks = conversation.marks(conversation.text)[: conversation.calls]
    places = [after.find(text) for text in said if text in after]
    return Truth(
        rendered[:place],
        after,
        lost,
        sum(mark in rendered for mark in marks),
        min(places, default=len(after)),
    )


def _over(rendered: str, marks: Sequence[str]) -> int | Unclear:
    """Return where the last of the words is over."""
    if any(rendered.count(mark) > 1 for mark in marks):
        return Unclear("the template writes the turn's text more than once")
    ends = [rendered.find(mark) + len(mark) for mark in marks if mark in rendered]
    return max(ends) if ends else Unclear("the template drops the turn's text")


def first_stop(found: Truth, stops: Collection[str]) -> tuple[int, int] | None:
    r"""Return where the first of the `stops` begins and ends in what follows the turn, before what is new.

    >>> first_stop(Truth("", "</call><end>\n<user>Hi", None, 1, 20), {"<end>", "<user>"})
    (7, 12)
    """
    longest = sorted(stops, key=len, reverse=True)
    match = re.search("|".join(map(re.escape, longest)), found.after[: found.fresh]) if longest else None
    return None if match is None else match.span()


@attrs.frozen
class Stops:
    """The stops of a model, as the template shows them.

    Attributes:
        plain: What ends a plain turn; None if the template writes no marker there.
        all: Every stop.
        close: What the template writes after a plain turn, up to its stop.
        opens: Whether the stop is what opens the next message.
    """

    plain: str | None
    all: frozenset[str]
    close: str = ""
    opens: bool = False


def stops(write: Write, found: Mapping[str, tuple[Conversation, Truth]], markers: Collection[str]) -> Stops:
    """Return the stops that the conversations in `found`, by shape, show.

    If the stop of plain turns opens the next message, each opener that follows a turn is a stop. A turn with
    calls may end with a stop of its own: the last marker that stands there whether anything follows or not.
    """
    plain = next((one for one in found.values() if _is_plain(*one, markers)), None)
    ended = Stops(None, frozenset()) if plain is None else _plain_stop(write, *plain, markers)
    known = {ended.plain} if ended.plain is not None else set()
    for conversation, one in found.values():
        if ended.opens and not conversation.calls:
            known |= {marker} if (marker := _first_marker(one.after, markers)) else set()
        if conversation.calls and first_stop(one, known) is None:
            own = _stop_of_calls(write, conversation, one, markers, opens=ended.opens)
            known |= {own} if own else set()
    return attrs.evolve(ended, all=frozenset(known))


def _is_plain(conversation: Conversation, found: Truth, markers: Collection[str]) -> bool:
    """Return whether a turn has no calls, and a marker follows it."""
    return not conversation.calls and _first_marker(found.after, markers) is not None


def _plain_stop(write: Write, conversation: Conversation, found: Truth, markers: Collection[str]) -> Stops:
    """Return what ends a plain turn, if nothing but white space stands before the first marker after it.

    That is the last marker that stands there whether anything follows or not, and before what opens the
    model's turn; else the first one. It opens the next message if it is the only one before its text, and a
    turn that is the last message lacks it.
    """
    first = _first_marker(found.after, markers) or ""
    closed = _before_opener(write, conversation, _always(write, conversation, found), markers).rstrip()
    last = _last_marker(closed, markers)
    further = found.after[found.after.index(first) + len(first) : found.fresh]
    opens = first not in _alone(write, conversation) and not any(one in further for one in markers)
    close = found.after.partition(first)[0] + first if last is None else closed
    return Stops(last or first, frozenset(), close, opens=opens)


def _first_marker(after: str, markers: Collection[str]) -> str | None:
    """Return the marker that `after` begins with, white space aside."""
    text = after.lstrip()
    return max((one for one in markers if text.startswith(one)), key=len, default=None)


def _alone(write: Write, conversation: Conversation) -> str:
    """Return what follows the turn where it is the last message; empty where that is not taken."""
    messages = [*conversation.history, conversation.turn]
    try:
        rendered = write(messages, speaking=False)
    except TemplateRefused:
        return ""
    place = _over(rendered, conversation.marks(conversation.text))
    return "" if isinstance(place, Unclear) else rendered[place:]


def _stop_of_calls(
    write: Write, conversation: Conversation, found: Truth, markers: Collection[str], *, opens: bool
) -> str | None:
    """Return what ends a turn with calls that no stop of plain turns ends."""
    always = _always(write, conversation, found)
    return _first_marker(found.after[len(always) :], markers) if opens else _last_marker(always, markers)


def _always(write: Write, conversation: Conversation, found: Truth) -> str:
    """Return what stands after the turn whether anything follows or not."""
    return found.after[: shared(_alone(write, conversation), found.after[: found.fresh])]


def _last_marker(text: str, markers: Collection[str]) -> str | None:
    """Return the marker that a text ends with, white space aside."""
    ends = text.rstrip()
    return max((one for one in markers if ends.endswith(one)), key=len, default=None)


def _before_opener(write: Write, conversation: Conversation, text: str, markers: Collection[str]) -> str:
    """Return a text up to the marker that opens the model's turn; empty where none can be seen."""
    try:
        prompt, silent = write(conversation.history), write(conversation.history, speaking=False)
    except TemplateRefused:
        return ""
    opener = _first_marker(prompt[shared(prompt, silent) :], markers)
    return "" if opener is None else text.partition(opener)[0]


def changes(write: Write, conversation: Conversation, found: Truth) -> tuple[str, ...]:
    """Return what a re-render changes or leaves out of the turn, and of the prompt before it."""
    try:
        prompt = write(conversation.history)
    except TemplateRefused:
        return ()
    gone = prompt[shared(prompt, found.before) :]
    unwritten = conversation.calls - found.calls
    thought = conversation.thinks and found.before.count(REASONING) <= prompt.count(REASONING)
    parts = (
        (bool(gone), f"the prompt from {gone[:SHOWN]!r} on"),
        (thought, "reasoning"),
        (unwritten > 0, f"{unwritten} of {conversation.calls} calls"),
    )
    return tuple(text for applies, text in parts if applies)


def shared(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike.

    >>> shared("abc", "abd")
    2
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def shown(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return messages with each text as a list of one part, for templates that write only such lists."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message.get("content"), str)
        else message
        for message in messages
    ]
