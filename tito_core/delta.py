"""Store each id of a trajectory once: a delta is a step without the parts shared with earlier steps.

Pickles and `tito_core.data` store trajectories as deltas. Storing a chain link by link would recurse, and a
step that is stored alone cannot say which other steps share its history.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, takewhile
from typing import Any, Generic, TypeAlias, TypeVar, cast

import attrs

from .errors import InputError
from .ids import PACKED, Ids
from .ledger import Ledger
from .media.ranges import NO_MEDIA, Media
from .message import Messages
from .sampling_mask import SamplingMask
from .shared import Chain
from .step import Step
from .trajectory import Trajectory

C = TypeVar("C", bound=Chain)
T = TypeVar("T", bound=Trajectory)

Place: TypeAlias = tuple[int, int]
"""The index of an earlier step, and how many of its messages or ids a step shares with it."""


@attrs.frozen(kw_only=True)
class StepDelta:
    """A step without the beginning that it shares with earlier steps of its trajectory.

    Attributes:
        prompt: Messages of the prompt after the shared ones.
        completion: Messages of the completion.
        prompt_ids: Ids of the prompt after the shared ones.
        completion_ids: Sampled ids.
        logprobs: Log-probabilities of the sampled ids, as `Step` takes them.
        truncated: Whether the turn was cut short.
        key: What the prompt was rendered with.
        prompt_ledger: Who wrote each prompt id, after the shared ones.
        shared_prompt: Index of an earlier step, and how many of its messages begin the prompt; None if the
            prompt shares no messages. The index is that of the step which has them first.
        shared_ids: Likewise for the ids of the prompt.
        shared_ledger: Likewise for the ledger of the prompt.
        media: Media ranges of the prompt after the shared ones.
        shared_media: Likewise for the media ranges of the prompt.
        sampling_mask: Sampling mask of the completion, as `Step` takes it.
    """

    prompt: Messages
    completion: Messages
    prompt_ids: Ids
    completion_ids: Ids
    logprobs: tuple[float | None, ...] | None
    truncated: bool
    key: str | None
    prompt_ledger: Ledger
    shared_prompt: Place | None
    shared_ids: Place | None
    shared_ledger: Place | None
    media: Media = NO_MEDIA
    shared_media: Place | None = None
    sampling_mask: SamplingMask | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        own = (
            tuple(self.prompt),
            tuple(self.completion),
            *map(_array, (self.prompt_ids, self.completion_ids)),
        )
        others = attrs.filters.exclude(Messages, Ids, Ledger, Media, "sampling_mask")
        rest = attrs.astuple(self, recurse=False, filter=others)
        return _unpickled, (*own, self.prompt_ledger.runs, *rest, tuple(self.media), self.sampling_mask)


def _array(ids: Iterable[int]) -> array[int]:
    return array(PACKED, ids)


def _unpickled(
    prompt: Any, completion: Any, prompt_ids: Any, completion_ids: Any, runs: Any, *rest: Any
) -> StepDelta:
    """Return a pickled delta."""
    names = ("logprobs", "truncated", "key", "shared_prompt", "shared_ids", "shared_ledger", "shared_media")
    # Steps that were stored without media, or without masks, have fewer.
    others = dict(zip((*names, "media", "sampling_mask"), rest, strict=False))
    return StepDelta(
        prompt=Messages(prompt),
        completion=Messages(completion),
        prompt_ids=Ids(prompt_ids),
        completion_ids=Ids(completion_ids),
        prompt_ledger=Ledger.of(runs),
        **{**others, "media": Media.of(others.get("media", ()))},
    )


# --- from steps to deltas -------------------------------------------------------------------------------


def deltas(steps: Iterable[Step]) -> list[StepDelta]:
    """Return what each of `steps` adds to those before it; linear in what is new.

    >>> from tito_core import Step, Trajectory
    >>> user, reply = {"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}
    >>> first = Step(prompt=[user], completion=[reply], prompt_ids=[1, 2], completion_ids=[3])
    >>> second = Step(prompt=[user, reply, user], completion=[], prompt_ids=[1, 2, 3, 1], completion_ids=[4])
    >>> [(len(one.prompt), one.shared_ids, one.prompt_ids) for one in deltas(Trajectory([first, second]))]
    [(1, None, Ids([1, 2])), (1, (0, 3), Ids([1]))]
    """
    messages, ids, ledgers, media = _Owners(), _Owners(), _Owners(), _Owners()
    found = []
    for index, step in enumerate(steps):
        places = (
            messages.find(index, step.prompt),
            ids.find(index, step.prompt_ids),
            ledgers.find(index, step.prompt_ledger),
            media.find(index, step.media),
        )
        messages.add(index, step.messages)
        ids.add(index, step.ids)
        found.append(_delta(step, *places))
    return found


def _delta(
    step: Step, messages: Place | None, ids: Place | None, ledger: Place | None, media: Place | None
) -> StepDelta:
    """Return a step without what stands at these places."""
    return StepDelta(
        prompt=Messages(tuple(step.prompt[_length(messages) :])),
        completion=step.completion,
        prompt_ids=Ids(_array(step.prompt_ids[_length(ids) :])),
        completion_ids=step.completion_ids,
        logprobs=step.logprobs,
        truncated=step.truncated,
        key=step.key,
        prompt_ledger=Ledger.of(step.prompt_ledger.since(_length(ledger))),
        shared_prompt=messages,
        shared_ids=ids,
        shared_ledger=ledger,
        media=Media(tuple(step.media[_length(media) :])),
        shared_media=media,
        sampling_mask=step.sampling_mask,
    )


def _length(place: Place | None) -> int:
    return 0 if place is None else place[1]


class _Owners:
    """Which step was the first to have a link of a chain, for the links of the steps so far."""

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}

    def find(self, index: int, chain: Chain) -> Place | None:
        """Return which earlier step has the beginning of `chain`; the rest belongs to step `index`."""
        new = list(takewhile(lambda link: id(link) not in self._places, chain.links()))
        base = new[-1].parent if new else chain
        for link in new:
            self.add(index, link)
        return self._places[id(base)] if base is not None and base.length else None

    def add(self, index: int, link: Chain) -> None:
        """Note that step `index` has a link, unless an earlier step has it."""
        self._places.setdefault(id(link), (index, link.length))


# --- from deltas to steps -------------------------------------------------------------------------------


def joined(kind: type[T], added: Sequence[StepDelta]) -> T:
    """Return the trajectory of class `kind` that deltas describe; nothing is compared.

    Raises `InputError` that begins with `steps[i]` if a delta shares what no earlier step has, or if its
    parts do not fit together.
    """
    messages, ids, ledgers = _Prefixes(_messages), _Prefixes(_ids), _Prefixes(_ledger)
    media = _Prefixes(_media)
    for one in added:
        messages.expect(one.shared_prompt)
        ids.expect(one.shared_ids)
        ledgers.expect(one.shared_ledger)
        media.expect(one.shared_media)
    grown = kind()
    for index, one in enumerate(added):
        try:
            step = Step(
                prompt=messages.join(index, one.prompt, one.shared_prompt, "shared_prompt"),
                completion=one.completion,
                prompt_ids=ids.join(index, one.prompt_ids, one.shared_ids, "shared_ids"),
                completion_ids=one.completion_ids.packed(),
                logprobs=one.logprobs,
                truncated=one.truncated,
                key=one.key,
                prompt_ledger=ledgers.join(index, one.prompt_ledger, one.shared_ledger, "shared_ledger"),
                media=media.join(index, one.media, one.shared_media, "shared_media"),
                sampling_mask=one.sampling_mask,
            )
        except InputError as error:
            raise InputError(f"steps[{index}]: {error}") from None
        messages.add(index, step.messages)
        ids.add(index, step.ids)
        grown = _followed(grown, step)
    return grown


def _followed(trajectory: T, step: Step) -> T:
    """Return a trajectory with one step more, as it is: `append` would look for what it shares."""
    longer = type(trajectory).__new__(type(trajectory))
    longer.__attrs_init__((step,), trajectory if trajectory.length else None)
    return longer


class _Prefixes(Generic[C]):
    """Beginnings of restored chains, which later steps share."""

    def __init__(self, extend: Callable[[C | None, C, int, int], C]) -> None:
        self._extend = extend
        self._links: dict[Place, C] = {}
        self._ends: dict[int, set[int]] = {}

    def expect(self, place: Place | None) -> None:
        """Note that a link must end where a later step leaves it, so that both steps can have it."""
        if place is not None:
            self._ends.setdefault(place[0], set()).add(place[1])

    def join(self, index: int, own: C, place: Place | None, name: str) -> C:
        """Return what is at `place` followed by what step `index` adds. Raises `InputError` with `name`."""
        if place is not None and place not in self._links:
            raise InputError(
                f"{name} is {list(place)}: give the index of an earlier step, and how much of it comes first"
            )
        link = None if place is None else self._links[place]
        start = 0 if link is None else link.length
        ends = sorted(end - start for end in self._ends.get(index, ()) if start < end < start + own.length)
        for first, last in pairwise([0, *ends, own.length]):
            link = link if link is not None and first == last else self._extend(link, own, first, last)
            self.add(index, link)
        return cast("C", link)  # `pairwise` gave at least one

    def add(self, index: int, link: C) -> None:
        """Note that later steps may share a link of step `index`."""
        self._links[index, link.length] = link


def _messages(before: Messages | None, own: Messages, start: int, stop: int) -> Messages:
    return Messages(tuple(own[start:stop]), before)


def _ids(before: Ids | None, own: Ids, start: int, stop: int) -> Ids:
    return Ids(_array(own[start:stop]), before)


def _ledger(before: Ledger | None, own: Ledger, start: int, stop: int) -> Ledger:
    cut = [
        (span.origin, min(span.stop, stop) - max(span.start, start))
        for span in own.spans
        if span.start < stop and span.stop > start
    ]
    return (before or Ledger()).then(*cut)


def _media(before: Media | None, own: Media, start: int, stop: int) -> Media:
    return (NO_MEDIA if before is None else before).then(own[start:stop])
