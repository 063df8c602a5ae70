"""Join sampled ids and a proven tail, with the turn's close written once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import attrs

from .errors import InputError
from .ids import PACKED, Ids
from .ledger import Ledger, Origin
from .media.ranges import NO_MEDIA, Media, Placeholders, media_runs
from .policy import OddStop, Policy, Truncated
from .refusal import Reason, Refusal
from .seams.prove import Proof


@attrs.frozen(kw_only=True)
class SampledIds:
    """The ids so far, and what is known of the turn at their end.

    Attributes:
        ids: All ids.
        turn: The sampled ones at the end, or as many of them as a close may need.
        count: How many at the end were sampled; 0 if unknown.
        prompt_ledger: Who wrote the others.
        truncated: Whether the turn was cut short; None if only the known stops can tell.
        stops: The ids that are known to end a turn.
        media: Where media stand in the ids.
        placeholders: What the template writes for media; None where the conversation has none.
    """

    ids: Ids
    turn: Sequence[int]
    count: int
    prompt_ledger: Ledger
    truncated: bool | None
    stops: Sequence[int]
    media: Media = NO_MEDIA
    placeholders: Placeholders | None = None

    @property
    def stop(self) -> int | None:
        """The id that the turn may have ended with; None if it was cut short."""
        return None if self.truncated or not self.turn else self.turn[-1]


@attrs.frozen(kw_only=True)
class NextPrompt:
    """The ids of the next prompt, and what was done at the close of the turn before it.

    Attributes:
        ids: Ids of the whole prompt, sharing those of the turn and before.
        added: The ids after those that were kept.
        inserted_close: The part of the turn's close that was missing and was inserted.
        replaced_stop: The sampled stop that the close replaced, if the policy says so.
        kept_stop: The sampled odd stop that stands before the close, if the policy says so.
        generation_prompt: How many ids at the end are the generation prompt.
        ledger: Who wrote each id.
        media: Where media stand in the ids, those of the new messages last.
        unexpanded: How many media of the new messages are placeholders still.
    """

    ids: Ids
    added: tuple[int, ...]
    inserted_close: tuple[int, ...]
    replaced_stop: int | None
    kept_stop: int | None
    generation_prompt: int
    ledger: Ledger
    media: Media = NO_MEDIA
    unexpanded: int = 0


def require_expanded(prompt: NextPrompt) -> None:
    """Raise `InputError` while media of a prompt are placeholders."""
    if prompt.unexpanded:
        raise InputError(
            f"{prompt.unexpanded} media are placeholders still: give what the engine saw to "
            "`tito_core.media.expansion.echoed`, and go on with the prompt that it returns"
        )


def join(sampled: SampledIds, proof: Proof, policy: Policy) -> NextPrompt | Refusal:
    """Append the tail to the sampled ids, with what was sampled of its close left out."""
    tail, closed = proof.ids, proof.cut.closed
    stops, counted = sampled.stops, bool(sampled.count)
    written = 0 if sampled.truncated else overlap(sampled.turn, tail, closed, stops, counted=counted)
    truncated = sampled.truncated
    if truncated is None:
        truncated = not written and bool(sampled.stops) and sampled.stop not in sampled.stops
    if truncated and policy.truncated is Truncated.REFUSE:
        return Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short")
    odd, call = not truncated and not written, proof.located.seam.tail[: proof.cut.place]
    # Where no stops are known: one up to which the template writes what the turn ends with is no odd one.
    last = sampled.turn[-1:] if odd and not sampled.stops else ()
    doubtful = overlap(sampled.turn, tail, closed, last, counted=counted) > closed if last else False
    if odd and (doubtful or not _may_continue(policy.odd_stop, sampled, call)):
        return Refusal(Reason.ODD_STOP, f"the turn ended with {sampled.stop}, not {tail[:1]}")
    ids, replaced = sampled.ids, sampled.stop if odd and policy.odd_stop is OddStop.REPLACE else None
    if replaced is not None:
        # Without the stop the turn may end with a part of the close, which must not be written twice.
        written = overlap(sampled.turn[:-1], tail, closed, stops, counted=counted)
        ids = Ids(ids.part[:-1], ids.older)
    added = tail[written:]
    close = added[: max(closed - written, 0)]
    before = sampled.prompt_ledger
    if replaced is not None and not sampled.count:
        before = Ledger.of(media_runs(Origin.PROMPT, 0, ids.length, sampled.media))
    prompt = min(proof.generation_prompt, len(added) - len(close))
    whole = ids.then(array(PACKED, added))
    if sampled.placeholders is not None and sampled.placeholders.spans(whole, ids.length):
        return Refusal(Reason.PLACEHOLDERS, f"no medium stands where the ids are joined, at id {ids.length}")
    media = [one.moved(whole.length - len(tail)) for one in proof.media]
    known = None if sampled.placeholders is None else (whole, sampled.placeholders)
    start, stop = whole.length - len(added) + len(close), whole.length - prompt
    return NextPrompt(
        ids=whole,
        added=added,
        inserted_close=close,
        replaced_stop=replaced,
        kept_stop=sampled.stop if odd and replaced is None else None,
        generation_prompt=prompt,
        ledger=before.then(
            (Origin.SAMPLED, max(sampled.count - (replaced is not None), 0)),
            (Origin.INSERTED_CLOSE, len(close)),
            *media_runs(Origin.ENVIRONMENT, start, stop, media),
            (Origin.GENERATION_PROMPT, prompt),
        ),
        media=sampled.media.then(media, known) if media or sampled.media else NO_MEDIA,
        unexpanded=len(media),
    )


def _may_continue(choice: OddStop, sampled: SampledIds, call: Sequence[int]) -> bool:
    """Return whether the policy accepts an odd stop. REPLACE must not remove an id of a text or call."""
    if choice is OddStop.REFUSE or not sampled.turn:
        return False
    known = sampled.stop in sampled.stops if sampled.stops else sampled.stop not in call
    return choice is OddStop.KEEP or known


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
    >>> overlap([56, 7], [6, 7, 1, 7], 4, [7])
    2
    """
    first = next((place + 1 for place, index in enumerate(tail) if index in stops), 0)
    if counted and first > closed and tuple(turn[-first:]) == tuple(tail[:first]):
        return first
    # A close that holds no stop of its own may be followed by one: the next role's marker.
    close = tuple(tail[: closed + (not set(stops).intersection(tail[:closed]))])
    end = tuple(turn[-closed - 1 :])
    same = [place + 1 for place, index in enumerate(close) if end and index == end[-1] and index in stops]
    if len(same) == 1:
        return same[0]
    by_stop = same[: end.count(end[-1]) if counted else 1][-1] if same else 0
    least = 1 + min((place for place, index in enumerate(close) if index in stops), default=0)
    for count in range(len(end), max(least, by_stop + 1) - 1, -1):  # the largest: a suffix may overlap itself
        if end[-count:] == tuple(tail[:count]):
            return count
    return by_stop
