"""Find where an assistant turn is closed, and how much of its close was sampled.

What a template writes after a turn's text begins with the rest of its tool call, if it has one. Then comes
the close: the suffix, a stop of its own such as gpt-oss's `<|call|>`, or nothing where the next role's marker
is the stop, as in GLM's templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import attrs

from ..media.ranges import places
from ..message import texts_in
from ..questions import Questions, ask, if_taken
from ..refusal import Reason, Refusal
from .history import ANSWER, SYSTEM, USER
from .seam import OTHER, SHORT, after, common_prefix
from .turn import Environment, LocatedTurn, SampledTurn
from .turn_form import calls_of, plainly_named

MISMATCH = Refusal(Reason.CLOSE_MISMATCH, "after the turn the template does not write the suffix")
UNSHOWN = Refusal(Reason.UNPROVEN_TAIL, "the end of the tool call's turn cannot be shown")
SPELLED = Refusal(Reason.UNPROVEN_TAIL, "a tool's name or a call's id is written like the turn's end")

IN_CLOSE = Refusal(
    Reason.UNPROVEN_TAIL, "the last id may be the turn's, or its close's: give the turn as `turn`"
)


@attrs.frozen
class Cut:
    """The place in a seam's tail where the turn's own text ends.

    Attributes:
        place: Index of the first id of the close, or of the next opener where nothing closes the turn.
        closed: How many ids from there on close the turn.
        sampled: How many of those the turn is shown to have sampled, where its last id does not say it.
        whole: Whether they are all that closes the turn, although the suffix ends with them and has more.
        merged: Whether what the suffix has more is one id with the end of the call.
        doubtful: Whether the last id, if it is no known stop, may hold the beginning of the close.
    """

    place: int
    closed: int
    sampled: int = 0
    whole: bool = False
    merged: bool = False
    doubtful: bool = False


def cut_questions(turn: SampledTurn, located: LocatedTurn) -> Questions[Cut | Refusal]:
    """Ask where in the tail the turn's own text is over: at once after content, else where the call ends."""
    own: int | Cut | Refusal = 0
    if calls_of(turn.message) and not (yield from _calls_unwritten(located)):
        own = yield from _call_end(turn, located)
    return (yield from _cut(turn, located, own)) if isinstance(own, int) else own


def _cut(turn: SampledTurn, located: LocatedTurn, own: int) -> Questions[Cut | Refusal]:
    """Return the close that begins where the turn's `own` ids are over."""
    tail, size = located.seam.tail, len(turn.suffix)
    if tail[own : own + size] == turn.suffix:
        closed = yield from _closed(turn, located, own)
        # Apertus goes on with the results in the same turn: nothing closes the call.
        if closed or not own or tail[own] in (turn.stop, *turn.stops):
            return Cut(own, closed)
    # GLM and gpt-oss close a turn with the next role's marker, or nothing that the suffix would show.
    if tail[own : own + 1] and tail[own] in (turn.stop, *turn.stops):
        return Cut(own, 0)
    return _unclosed(turn, MISMATCH) if own else MISMATCH


def _unclosed(turn: SampledTurn, otherwise: Refusal) -> Refusal:
    """Return why a call's turn is not closed: the stop that it ended with, if that is not known."""
    if turn.stop is None:
        return otherwise
    return Refusal(
        Reason.ODD_STOP,
        f"the turn ended with {turn.stop}, which closes no tool call here:"
        " if it does, it is missing in stop_ids",
    )


def _calls_unwritten(located: LocatedTurn) -> Questions[bool]:
    """Return whether the template writes a turn's content and leaves out its calls."""
    # Yi, Phi-3 and Llama 2 write nothing of calls.
    if located.form.place is not None:
        return False
    bare = {name: value for name, value in located.form.turn.items() if name != "tool_calls"}
    said = attrs.evolve(located, form=attrs.evolve(located.form, turn=bare))
    asking = ask(said.messages(located.environment, located.seam.said), since=located.since)
    return located.seam.ends((yield from if_taken(asking, ())))


def _closed(turn: SampledTurn, located: LocatedTurn, own: int) -> Questions[int]:
    """Return how many ids close a turn: those of the suffix, or all up to a known stop after them.

    Some templates write their stop only once something follows, where the suffix does not show it.
    """
    # Mistral-Tekken's `</s>` stands after a turn that something follows alone.
    size = len(turn.suffix)
    if not turn.stops or not set(turn.stops).isdisjoint(turn.suffix):
        return size
    shared = yield from _always_written(located)
    if shared is None or _first(turn.stops, shared[own:]) is not None:
        spoken = yield from _before(located, ANSWER)  # two roles may share an opener; an assistant's differs
        shared = min((one for one in (shared, spoken) if one is not None), key=len, default=())
    stop = _first(turn.stops, shared[own:])
    return size if stop is None else max(size, stop + 1)


def _call_end(turn: SampledTurn, located: LocatedTurn) -> Questions[int | Cut | Refusal]:
    """Return how many ids of the tail are the call's; or the close, where that closes calls alone.

    No engine samples past a stop. So the first one that stands after the call, whatever follows, closes it.
    """
    if (yield from _spells_end(turn, located)):
        return SPELLED
    always = yield from _always_written(located)
    tail = located.seam.tail if always is None else always  # where no other role may follow
    silent = yield from _alone(located, speaking=False)
    shared = tail[: common_prefix(tail, silent or ())]
    if _first(turn.stops, shared) is not None or silent == shared:
        return _with_nothing_after(shared, located.seam.tail, turn)
    # The template closes the last turn otherwise, or writes no calls in it, unless the model is to speak.
    speaking = yield from _alone(located, speaking=True)
    alone = speaking or silent or ()
    shared = tail[: common_prefix(tail, alone)]
    end = len(tail) + 1 if silent is None else common_prefix(alone, silent)
    if _first(turn.stops, shared) is not None or end <= len(shared):
        return _with_nothing_after(shared, located.seam.tail, turn, min(end, len(shared)))
    # It is written otherwise once something follows: Apriel adds the call's id, Olmo has another stop.
    return _first_stop(always or (), len(shared), turn) or UNSHOWN


def _with_nothing_after(
    shared: tuple[int, ...], tail: tuple[int, ...], turn: SampledTurn, end: int | None = None
) -> int | Cut | Refusal:
    """Return where a call ends of which the `shared` ids are written with nothing after it, too.

    At their `end` the turn is over; with a generation prompt its opener may be shared, too.
    """
    stop = _first(turn.stops, shared)
    if stop is not None and shared[stop] in turn.suffix:
        return _close_with(stop, shared, turn.suffix)
    if stop is not None:  # it closes calls alone, as gpt-oss's `<|call|>`
        return Cut(stop, max(len(shared[:end]) - stop, 1))
    found = list(places(turn.suffix, shared)) if turn.stop in turn.suffix and not turn.stops else []
    if len(found) > 1:  # that one before which the turn was sampled so
        kept = turn.end[: -turn.suffix.index(turn.end[-1]) - 1]
        found = [place for place in found if _ends(kept, shared[1:place])]
        return found[0] if len(found) == 1 else UNSHOWN
    if found:
        return found[0]
    return _last_close(shared[:end], tail[len(shared[:end]) :], turn)


def _close_with(stop: int, always: tuple[int, ...], suffix: tuple[int, ...]) -> int | Cut:
    """Return where the suffix begins, whose first known stop stands at `stop`."""
    # Apriel-1.5, Laguna and deepseek-coder close with a line break before their stop.
    before = suffix[: suffix.index(always[stop])]
    begin = stop - len(before)
    whole = begin >= 0 and always[begin:stop] == before
    return begin if whole else Cut(stop, len(suffix) - len(before))


def _last_close(always: tuple[int, ...], rest: tuple[int, ...], turn: SampledTurn) -> int | Cut | Refusal:
    """Return where the close begins that ends what is `always` written; its end without one.

    `rest` is the tail after it. No known stop stands there. Where none is known, that which the turn ended
    with may be the close, or open the next message. Else text that closes calls alone cannot be shown.
    """
    suffix, later = turn.suffix, turn.suffix[1:]
    if later and always[-len(later) :] == later and always[-len(suffix) :] != suffix:
        return Cut(len(always) - len(later), len(later))  # its first id may be one with the end of the call
    sizes = range(min(len(suffix), len(always)), 0, -1)
    size = next((size for size in sizes if always[-size:] == suffix[:size]), 0)
    # Where tags are text, the next opener begins like the close.
    begun = size and (turn.stops or turn.stop not in always[:-size])
    if begun or turn.stops or (suffix and rest[: len(suffix)] == suffix):
        return len(always) - size
    if always[-1:] == (turn.stop,) and always.count(turn.stop) == 1:
        return Cut(len(always) - 1, 1)
    opens = rest[:1] == (turn.stop,) and turn.stop not in always
    return len(always) if opens else _unclosed(turn, UNSHOWN)


def _first_stop(always: tuple[int, ...], call: int, turn: SampledTurn) -> Cut | None:
    """Return the first known stop that is always written, if nothing before it may close the turn, too.

    So it is where it was sampled, is a part of the suffix, or is the only one and follows the `call` ids that
    stand there with nothing after them, too.
    """
    found, suffix = [place for place, index in enumerate(always) if index in turn.stops], turn.suffix
    # A call's id may spell a stop, and be written once something follows alone.
    if not found or (len(found) > 1 and plainly_named(turn.message) != turn.message):
        return None
    if always[found[0]] == turn.stop:
        return Cut(found[0], 1)
    begin = found[0] - suffix.index(always[found[0]]) if always[found[0]] in suffix else -1
    if begin >= 0 and always[begin:][: len(suffix)] == suffix:
        return Cut(begin, len(suffix))
    begun = any(always[:call][-size:] == suffix[:size] for size in range(1, len(suffix) + 1))
    return Cut(call, 1) if found == [call] and not begun else None


def _spells_end(turn: SampledTurn, located: LocatedTurn) -> Questions[bool]:
    """Return whether names or ids of calls hold stops, or ids of a close; usual ones never do."""
    # A client may name a tool `</s>`: a tokenizer makes the stop of it.
    usual = plainly_named(located.form.turn)
    if usual == located.form.turn:
        return False
    marks, found = {turn.stop, *turn.stops, *turn.suffix}, []
    for form in (located.form, attrs.evolve(located.form, turn=usual)):
        ids = yield from _alone(attrs.evolve(located, form=form), speaking=False)
        if ids is None:
            return True
        found.append([one for one in ids if one in marks])
    return found[0] != found[1]


def first_stop(turn: SampledTurn, close: Sequence[int]) -> int:
    """Return the place of the first stop in a close: what stands before it may be one id with other text."""
    return _first(turn.stops or (turn.stop,), close) or 0


def _first(wanted: Sequence[int | None], ids: Sequence[int]) -> int | None:
    """Return the place of the first of `ids` that is wanted."""
    return next((place for place, index in enumerate(ids) if index in wanted), None)


def _alone(located: LocatedTurn, *, speaking: bool) -> Questions[tuple[int, ...] | None]:
    """Return what stands after the turn's text with nothing after the turn; None if that is not shown."""
    messages = located.messages((), located.seam.said)
    asking = ask(messages, add_generation_prompt=speaking, since=located.since)
    return after(located.seam.text, (yield from if_taken(asking, ())))


def _always_written(located: LocatedTurn) -> Questions[tuple[int, ...] | None]:
    """Return how much of the tail stands there whatever the role and the text of the next message are."""
    first = located.environment[0]
    other = SYSTEM if first["role"] == "user" else USER
    text = SHORT if "".join(texts_in(first)).startswith(OTHER[0]) else OTHER
    return (yield from _before(located, {**other, "content": text}))


def _before(located: LocatedTurn, message: dict[str, Any]) -> Questions[tuple[int, ...] | None]:
    """Return how much of the tail stands there before another message; None if the template rejects that."""
    found = yield from if_taken(following_questions(located, (message,)), None)
    return None if found is None else located.seam.tail[: common_prefix(found, located.seam.tail)]


def following_questions(
    located: LocatedTurn, environment: Environment, *, speaking: bool = True
) -> Questions[tuple[int, ...] | None]:
    """Ask what stands after the turn's text before other messages; None where the text is not found.

    The turn may be written with other reasoning there: Qwen3's template writes it until a user's message
    follows. Then it is found by its text.
    """
    seam = located.seam
    asked = located.messages(environment)
    ids = yield from ask(asked, add_generation_prompt=speaking, since=located.since)
    if ids[: seam.place] == seam.ids[: seam.place]:
        return ids[seam.place :]
    asked = located.messages(environment, seam.said)
    return after(seam.text, (yield from ask(asked, add_generation_prompt=speaking, since=located.since)))


def sampled_close_questions(turn: SampledTurn, located: LocatedTurn, cut: Cut) -> Questions[Cut | Refusal]:
    """Ask how much of its close a turn sampled that ends inside of it, as far as its message shows that.

    Its last id may be text: a close that begins with a line break follows a text that ends with one. Or the
    close begins with text that is one id with the end of the turn's. The template says which, rendering the
    turn as it was restated: up to that id of the close it must write what was sampled. Where it writes the
    last id alone, and before it other ids for the same text, it is doubtful.
    """
    tail, end = located.seam.tail[cut.place :], turn.end
    if end[-1] in turn.stops or (turn.stop is not None and overlap(end, tail, cut.closed, turn.stops)):
        return cut
    # The last id of a turn that ended with no stop of the template may be one of its text and its close.
    odd = turn.stop is not None
    ends = [place + 1 for place in range(cut.closed) if odd or tail[place] == end[-1]]
    if turn.others and end[-1] in tail[: cut.closed]:
        return IN_CLOSE
    if turn.others or not ends:
        return cut
    # Of the whole: it does not say the text from which on the ids of the others are enough.
    ids = yield from if_taken(ask((*located.context, turn.message, *located.environment)), ())
    doubtful = False
    for sampled in reversed(ends):
        size, rest = _telling(end, tail[:sampled]), tail[sampled:]
        before = ids[: len(ids) - len(rest)]
        same = ids[len(before) :] == rest and before[-1:] == end[-1:]
        if same and size <= len(end) and before[-size:] == end[-size:]:
            return attrs.evolve(cut, sampled=sampled)
        doubtful = doubtful or same
    return attrs.evolve(cut, doubtful=doubtful)


def _telling(end: tuple[int, ...], close: tuple[int, ...]) -> int:
    """Return how many of the last ids tell a turn that ends with `close` from one that it follows.

    They are two at least: one id may be that of another text.

    >>> _telling((5, 7, 7), (7,)), _telling((5, 6, 9), (7,)), _telling((7, 7), (7,))
    (3, 2, 3)
    """
    both = (*end, *close)
    sizes = range(min(2, len(end)), len(end) + 1)
    return next((size for size in sizes if end[-size:] != both[-size:]), len(end) + 1)


CALL_ENDS = "".join(map(chr, (10, *range(32, 127))))
"""What a call may end with."""


def whole_close_questions(turn: SampledTurn, located: LocatedTurn, cut: Cut) -> Questions[Cut]:
    """Ask whether a close that is shorter than the suffix is whole, or one id with the end of the call.

    After a text that ends with each of many characters the template writes the suffix. Where a merge makes
    the id that stands before the rest of it here, its first id is in that one. Where nothing merges, a close
    that begins with a known stop is whole: Cohere's templates have another id in the place of its first.
    """
    tail, missing = located.seam.tail, len(turn.suffix) - cut.closed
    if missing < 1 or not cut.closed or tail[cut.place :][: cut.closed] != turn.suffix[missing:]:
        return cut
    ids = yield from if_taken(ask(_saying(CALL_ENDS)), ())
    plain = yield from if_taken(ask(_saying([""] * len(CALL_ENDS))), ())
    hidden = tail[max(cut.place - missing, 0) : cut.place + cut.closed]
    if hidden[1:] == turn.suffix[1:] and any(True for _ in places(hidden, ids)):
        return attrs.evolve(cut, merged=True)
    apart, all_of_them = (len(list(places(turn.suffix, one))) for one in (ids, plain))
    whole = apart == all_of_them >= len(CALL_ENDS) and tail[cut.place] in turn.stops
    return attrs.evolve(cut, whole=whole)


def _saying(ends: Sequence[str]) -> list[dict[str, Any]]:
    """Return a conversation in which each answer ends with one of these characters."""
    texts = ({"role": "assistant", "content": f"{SHORT}{end}"} for end in ends)
    return [*chain.from_iterable((USER, text) for text in texts), USER]


END = 16
"""How many of the last ids so far are compared with what a template writes."""


def rest_of_close(
    end: Sequence[int], tail: tuple[int, ...], cut: Cut, suffix: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the rest of the close of a turn that did not sample its end; None if the tail does not show it.

    A close that begins with text may be one id with the end of a call: Apriel's and Laguna's begin with a
    line break. Then the suffix is written whole after a turn that sampled all of the call. `end` are the last
    ids so far, `tail` is what stands after the text of the turn, whose first id may be one with that text.

    >>> cut = Cut(3, 1, merged=True)
    >>> rest_of_close([50, 5, 6], (30, 5, 67, 2, 1), cut, (7, 2))
    (7, 2)
    >>> rest_of_close([50], (30, 5, 67, 2, 1), cut, (7, 2)) is None     # it broke off in the call
    True
    """
    close = tail[cut.place : cut.place + cut.closed]
    missing = len(suffix) - len(close)
    if missing <= 0 or not close or suffix[missing:] != close or cut.whole:
        return close[cut.sampled :]
    shown = cut.place - missing + 1
    if cut.merged and _ends(end, tail[1:shown]):
        return suffix[1:]
    return suffix if cut.merged and _ends(end[:-1], tail[1 : shown - 1]) else None


def _ends(ids: Sequence[int], end: Sequence[int]) -> bool:
    """Return whether the last of `ids` are those of `end`, as far as both are known."""
    size = min(len(ids), len(end), END)
    return size > 0 and tuple(ids[-size:]) == tuple(end[-size:])


def overlap(
    turn: Sequence[int], tail: Sequence[int], closed: int, stops: Sequence[int] = (), *, counted: bool = True
) -> int:
    """Return how many ids of the tail the turn ends with: of its close, and of the next opener.

    `closed` ids of the tail close the turn. A close may begin with text, which may be the turn's own text or
    one id with the end of it. Where a known stop stands in the close, it must have been sampled, and that is
    enough. One that stands there several times was sampled once, unless the engine went on after it; without
    `counted`, the turn may begin before its ids, and other stops in it do not count.

    >>> overlap([5, 7, 7], [7, 7, 1], 2), overlap([5, 7], [7, 7, 1], 2)
    (2, 1)
    >>> overlap([5, 8], [8, 1], 0)             # the next role's marker was sampled as the stop
    1
    >>> overlap([5, 6, 8], [6, 8, 1], 0, [8])  # and before it what the template writes
    2
    >>> overlap([56, 7], [6, 7, 1], 2), overlap([56, 7], [6, 7, 1], 2, [7])
    (0, 2)
    >>> overlap([56, 7], [6, 7, 1, 7], 4, [7]), overlap([5, 7, 6, 7], [6, 7, 6, 7], 4, [7])
    (2, 0)
    """
    first = next((place + 1 for place, index in enumerate(tail) if index in stops), 0)
    if counted and first > closed and tuple(turn[-first:]) == tuple(tail[:first]):
        return first
    # A close that holds no stop of its own may be followed by one: the next role's marker.
    close = tuple(tail[: closed + (not set(stops).intersection(tail[:closed]))])
    end = tuple(turn[-closed - 1 :])
    same = [place + 1 for place, index in enumerate(close) if end and index == end[-1] and index in stops]
    if len(same) == 1 and set(stops).isdisjoint(close[: same[0] - 1]):
        return same[0]
    # Another stop before it would have ended the turn: only the ids themselves show that it was sampled, too.
    by_stop = same[: end.count(end[-1]) if counted else 1][-1] if len(same) > 1 else 0
    least = 1 + min((place for place, index in enumerate(close) if index in stops), default=0)
    sizes = range(len(end), least - 1, -1)  # the largest: a suffix may overlap itself
    exact = next((count for count in sizes if end[-count:] == tuple(tail[:count])), 0)
    # An engine that went on after a stop: what the turn sampled of its close is not shown.
    return 0 if 0 < exact < by_stop else max(exact, by_stop)
