"""Steps: one model call each, as messages and as exact ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from math import isnan
from typing import Any, TypeVar

import attrs

from .checks import is_a
from .errors import InputError
from .ids import Ids
from .ledger import Ledger, Origin
from .media.ranges import NO_MEDIA, Media, MediaRange, media_runs
from .message import Message, Messages
from .normalization.media import each_medium
from .sampling_mask import SamplingMask
from .shared import Shared

T = TypeVar("T")
LARGEST_LOGPROB = 1e-3
"""The largest log-probability that rounding explains; it is stored as 0. A larger one is no probability."""


def _prompt(messages: Sequence[Message]) -> Messages:
    return Messages.of(messages, "prompt")


def _completion(messages: Sequence[Message]) -> Messages:
    return Messages.of(messages, "completion")


def _prompt_ids(ids: Sequence[int]) -> Ids:
    return Ids.of(ids, "prompt_ids")


def _completion_ids(ids: Sequence[int]) -> Ids:
    return Ids.of(ids, "completion_ids")


def _media(ranges: Iterable[MediaRange]) -> Media:
    return Media.of(ranges)


def is_number(value: object) -> bool:
    """Return whether a value is a number other than NaN, or None."""
    if isinstance(value, float):
        return not isnan(value)
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _logprobs(logprobs: object) -> tuple[float | None, ...] | None:
    if logprobs is None:
        return None
    if not isinstance(logprobs, Sequence) or isinstance(logprobs, str | bytes):
        raise InputError(f"logprobs must be a list of numbers, not {type(logprobs).__name__}")
    # Floats alone are the usual case. That none is NaN is seen in C, since any sum with one is NaN.
    given = tuple(logprobs)
    if set(map(type, given)) <= {float} and not isnan(sum(given)) and max(given, default=0.0) <= 0:
        return given
    return tuple(_logprob(value, position) for position, value in enumerate(given))


def _logprob(value: Any, position: int) -> float | None:
    if not is_number(value):
        raise InputError(f"logprobs[{position}] is {value!r:.60}: give a number or None")
    if value is not None and value > LARGEST_LOGPROB:
        raise InputError(
            f"logprobs[{position}] is {value!r:.60}, above 0: give the natural logarithms of probabilities"
        )
    return rounded(value)


def rounded(value: float | None) -> float | None:
    """Return a log-probability without what rounding has put above 0.

    >>> [rounded(value) for value in (-0.5, 1e-7, 0.5, None)]
    [-0.5, 0.0, 0.5, None]
    """
    return 0.0 if isinstance(value, float) and 0 < value <= LARGEST_LOGPROB else value


@attrs.frozen(kw_only=True, repr=False)
class Step:
    """One model call: what was sent and what was sampled. Everything is copied and checked once.

    Attributes:
        prompt: Messages of the request, the whole conversation.
        completion: Messages that the model answered with; normally one assistant message.
        prompt_ids: The ids that the engine saw.
        completion_ids: The ids that the engine sampled, with the stop if it sampled one.
        logprobs: One natural-log probability per completion id, None where the engine gave none.
            None altogether without any. One above 0, by at most `LARGEST_LOGPROB`, is stored as 0.
        sampling_mask: The ids that could have been sampled in place of each completion id; `logprobs` are
            then normalized over them. None where the engine sent none.
        truncated: Whether the turn was cut short, so that no stop was sampled.
        key: What the prompt was rendered with, made by `render_key`; None if unknown.
        media: Where the media of the prompt stand in `prompt_ids`: a `MediaRange` for each. A step whose
            messages have media is continued only if it has all of them.
        prompt_ledger: Who wrote each prompt id; all but the media's are `Origin.PROMPT` unless given.
        messages: Prompt and completion together.
        ids: Prompt and completion ids together: what the next prompt begins with.

    Raises:
        InputError: An id, a message, a range or a log-probability is invalid, or a range is that of another
            image than the prompt shows. Or `logprobs` or `sampling_mask` does not have one value per
            completion id. Or a mask lacks its sampled id.

    >>> step = Step(prompt=[{"role": "user", "content": "hi"}],
    ...             completion=[{"role": "assistant", "content": "hello"}],
    ...             prompt_ids=[1, 2, 3], completion_ids=[4, 5], logprobs=[-0.5, -0.25])
    >>> step.ids, len(step.messages)
    (Ids([1, 2, 3, 4, 5]), 2)
    """

    prompt: Messages = attrs.field(converter=_prompt)
    completion: Messages = attrs.field(converter=_completion)
    prompt_ids: Ids = attrs.field(converter=_prompt_ids)
    completion_ids: Ids = attrs.field(converter=_completion_ids)
    logprobs: tuple[float | None, ...] | None = attrs.field(default=None, converter=_logprobs)
    truncated: bool = attrs.field(default=False, validator=is_a(bool))
    key: str | None = attrs.field(default=None, validator=is_a(str, type(None)))
    media: Media = attrs.field(default=NO_MEDIA, converter=_media)
    prompt_ledger: Ledger = attrs.field(validator=is_a(Ledger))
    sampling_mask: SamplingMask | None = attrs.field(default=None, validator=is_a(SamplingMask, type(None)))
    messages: Messages = attrs.field(init=False, eq=False)
    ids: Ids = attrs.field(init=False, eq=False)

    @media.validator
    def _fits_ids(self, _: Any, media: Media) -> None:
        if media and media[-1].stop > len(self.prompt_ids):
            raise InputError(
                f"media[{len(media) - 1}] ends at {media[-1].stop}, prompt_ids has {len(self.prompt_ids)}"
            )
        # What media share with an earlier step was checked there.
        messages = self.prompt if media.parent is None else self.prompt.part
        shown = tuple(islice(each_medium(messages), len(media)))  # no further: later messages may be many
        first = max(len(media) - len(shown), 0)
        for place, (one, medium) in enumerate(zip(media[first:], shown, strict=False), first):
            if medium.identity not in (None, one.identity) or medium.modality != one.modality:
                raise InputError(
                    f"media[{place}] is the {one.modality} {one.identity!r:.80}, where the prompt shows the "
                    f"{medium.modality} {medium.identity!r:.80}"
                )

    @prompt_ledger.default
    def _rendered(self) -> Ledger:
        length = len(self.prompt_ids)
        fits = not self.media or self.media[-1].stop <= length  # else the validator of `media` raises
        return Ledger.of(media_runs(Origin.PROMPT, 0, length, self.media if fits else ()))

    @messages.default
    def _all_messages(self) -> Messages:
        return Messages(_one_part(self.completion), self.prompt) if self.completion else self.prompt

    @ids.default
    def _all_ids(self) -> Ids:
        return self.prompt_ids.then(_one_part(self.completion_ids))

    @logprobs.validator
    def _count_logprobs(self, _: Any, logprobs: tuple[float | None, ...] | None) -> None:
        if logprobs is not None and len(logprobs) != len(self.completion_ids):
            raise InputError(
                f"logprobs has length {len(logprobs)} for {len(self.completion_ids)} completion_ids: "
                "give one for each id (None where the engine gave no value), or leave logprobs out"
            )

    @sampling_mask.validator
    def _holds_completion(self, _: Any, mask: SamplingMask | None) -> None:
        if mask is not None:
            mask.require(self.completion_ids, "completion_ids")

    @prompt_ledger.validator
    def _count_ledger(self, _: Any, ledger: Ledger) -> None:
        length = ledger.length  # `len` fails for more than 63 bits
        if length != len(self.prompt_ids):
            raise InputError(f"prompt_ledger covers {length} ids, prompt_ids has {len(self.prompt_ids)}")

    @property
    def ledger(self) -> Ledger:
        """Who wrote each of `ids`."""
        return self.prompt_ledger.then((Origin.SAMPLED, len(self.completion_ids)))

    @property
    def ends_with_turn(self) -> bool:
        """Whether the step ends with an assistant's turn, as it must to be continued."""
        return bool(self.completion) and self.completion.peek(-1)["role"] == "assistant"

    @property
    def stop(self) -> int | None:
        """The sampled stop: the last id of a turn that was not cut short, else None."""
        return None if self.truncated or not self.completion_ids else self.completion_ids[-1]

    def __getstate__(self) -> dict[str, Any]:
        return attrs.asdict(self, recurse=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A step may have been pickled without media and masks.
        for name, value in {"media": NO_MEDIA, "sampling_mask": None, **state}.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"Step({len(self.prompt)} + {len(self.completion)} messages, "
            f"{len(self.prompt_ids)} + {len(self.completion_ids)} ids{', truncated' * self.truncated})"
        )


def _one_part(items: Shared[T]) -> Sequence[T]:
    """Return ids or messages as a part for another chain."""
    return items.part if items.parent is None else tuple(items)
