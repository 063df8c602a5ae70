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
from .seams.close import overlap, rest_of_close
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

    def overlap(self, tail: tuple[int, ...], closed: int) -> int:
        """Return how much of the tail was sampled, of which `closed` ids are the close (see `overlap`)."""
        return overlap(self.turn, tail, closed, self.stops, counted=bool(self.count))


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


TRUNCATED = Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short")
UNCLEAR = Refusal(Reason.UNPROVEN_TAIL, "the end of the tool call is one id with its turn's close")


@attrs.frozen
class Closing:
    """How the close of a turn is written.

    Attributes:
        close: What is inserted of it.
        rest: What the template writes after it.
        replaced: The sampled stop in whose place it stands.
        kept: The sampled odd stop that stands before it.
    """

    close: tuple[int, ...]
    rest: tuple[int, ...]
    replaced: int | None = None
    kept: int | None = None


def join(sampled: SampledIds, proof: Proof, suffix: tuple[int, ...], policy: Policy) -> NextPrompt | Refusal:
    """Append the tail to the sampled ids, with what was sampled of its close left out."""
    closing = _closing(sampled, proof, suffix, policy)
    return closing if isinstance(closing, Refusal) else _appended(sampled, proof, closing)


def _closing(sampled: SampledIds, proof: Proof, suffix: tuple[int, ...], policy: Policy) -> Closing | Refusal:
    tail, closed = proof.ids, proof.cut.closed
    written = sampled.overlap(tail, closed)
    is_text = bool(sampled.stops) and sampled.stop not in sampled.stops
    if sampled.truncated or (sampled.truncated is None and not written and is_text):
        if policy.truncated is Truncated.REFUSE:
            return TRUNCATED
        close = rest_of_close(sampled.turn, proof.located.seam.tail, proof.cut, suffix)
        return UNCLEAR if close is None else Closing(close, tail[closed:])
    written = written or proof.cut.sampled
    if written:
        return Closing(tail[written : max(closed, written)], tail[max(closed, written) :])
    return _odd(sampled, proof, suffix, policy.odd_stop)


def _odd(sampled: SampledIds, proof: Proof, suffix: tuple[int, ...], choice: OddStop) -> Closing | Refusal:
    """Return what a policy makes of an odd stop. REPLACE must not remove an id of a text or call."""
    tail, closed, turn = proof.ids, proof.cut.closed, sampled.turn
    call = proof.located.seam.tail[: proof.cut.place]
    known = sampled.stop in sampled.stops if sampled.stops else sampled.stop not in call
    # One up to which the template writes what the turn ends with is no odd one, known or not.
    stops = sampled.stops or turn[-1:]
    doubtful = proof.cut.doubtful or overlap(turn, tail, closed, stops) or sampled.stop in tail[: closed + 1]
    if doubtful or not turn or choice is OddStop.REFUSE or not (known or choice is OddStop.KEEP):
        return Refusal(Reason.ODD_STOP, f"the turn ended with {sampled.stop}, not {tail[:1]}")
    close = rest_of_close(turn[:-1], proof.located.seam.tail, proof.cut, suffix)
    if choice is OddStop.KEEP:
        return UNCLEAR if close is None else Closing(close, tail[closed:], kept=sampled.stop)
    # Without the stop the turn may end with a part of the close, which must not be written twice.
    written = attrs.evolve(sampled, turn=turn[:-1]).overlap(tail, closed)
    close = tail[written : max(closed, written)] if written else close
    if close is None:
        return UNCLEAR
    return Closing(close, tail[max(closed, written) :], replaced=sampled.stop)


def _appended(sampled: SampledIds, proof: Proof, closing: Closing) -> NextPrompt | Refusal:
    """Append a close and what stands after it."""
    ids, before, added = sampled.ids, sampled.prompt_ledger, (*closing.close, *closing.rest)
    if closing.replaced is not None:
        ids = Ids(ids.part[:-1], ids.older)
        if not sampled.count:
            before = Ledger.of(media_runs(Origin.PROMPT, 0, ids.length, sampled.media))
    whole = ids.then(array(PACKED, added))
    if sampled.placeholders is not None and sampled.placeholders.spans(whole, ids.length):
        return Refusal(Reason.PLACEHOLDERS, f"no medium stands where the ids are joined, at id {ids.length}")
    prompt = min(proof.generation_prompt, len(closing.rest))
    media = [one.moved(whole.length - len(proof.ids)) for one in proof.media]
    known = None if sampled.placeholders is None else (whole, sampled.placeholders)
    start, stop = whole.length - len(closing.rest), whole.length - prompt
    return NextPrompt(
        ids=whole,
        added=added,
        inserted_close=closing.close,
        replaced_stop=closing.replaced,
        kept_stop=closing.kept,
        generation_prompt=prompt,
        ledger=before.then(
            (Origin.SAMPLED, max(sampled.count - (closing.replaced is not None), 0)),
            (Origin.INSERTED_CLOSE, len(closing.close)),
            *media_runs(Origin.ENVIRONMENT, start, stop, media),
            (Origin.GENERATION_PROMPT, prompt),
        ),
        media=sampled.media.then(media, known) if media or sampled.media else NO_MEDIA,
        unexpanded=len(media),
    )
