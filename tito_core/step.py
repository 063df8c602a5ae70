"""One model call, kept exactly: what was sent, what was sampled, as messages and as ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from typing import Any, TypeVar

import attrs

from .errors import InputError
from .ids import Ids
from .ledger import Ledger, Origin
from .message import Message, Messages
from .shared import Shared

T = TypeVar("T")


def _prompt(messages: Sequence[Message]) -> Messages:
    return Messages.of(messages, "prompt")


def _completion(messages: Sequence[Message]) -> Messages:
    return Messages.of(messages, "completion")


def _prompt_ids(ids: Sequence[int]) -> Ids:
    return Ids.of(ids, "prompt_ids")


def _completion_ids(ids: Sequence[int]) -> Ids:
    return Ids.of(ids, "completion_ids")


def _is_a(*kinds: type) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """Return a validator that names the field."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kinds):
            raise InputError(f"{field.name} is {value!r:.60}: give {' or '.join(k.__name__ for k in kinds)}")

    return check


def is_number(value: object) -> bool:
    """Tell whether a value is a number, or None where there is none."""
    if isinstance(value, float):
        return not isnan(value)
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _logprobs(logprobs: object) -> tuple[float | None, ...] | None:
    if logprobs is None:
        return None
    if not isinstance(logprobs, Sequence) or isinstance(logprobs, str | bytes):
        raise InputError(f"logprobs must be a list of numbers, not {type(logprobs).__name__}")
    return tuple(logprobs)


@attrs.frozen(kw_only=True, repr=False)
class Step:
    """A model call. Everything is copied and checked once; a step does not change.

    Raises `InputError` where an id is no id, a message no message, or the log-probabilities are not as
    many as the completion's ids.

    >>> step = Step(prompt=[{"role": "user", "content": "hi"}],
    ...             completion=[{"role": "assistant", "content": "hello"}],
    ...             prompt_ids=[1, 2, 3], completion_ids=[4, 5], logprobs=[-0.5, -0.25])
    >>> step.ids, len(step.messages)
    (Ids([1, 2, 3, 4, 5]), 2)
    """

    prompt: Messages = attrs.field(converter=_prompt)
    """The messages of the request, the whole conversation."""
    completion: Messages = attrs.field(converter=_completion)
    """The messages that the model answered with; normally one assistant message."""
    prompt_ids: Ids = attrs.field(converter=_prompt_ids)
    """The ids that the engine saw."""
    completion_ids: Ids = attrs.field(converter=_completion_ids)
    """The ids that the engine sampled, the stop among them if it sampled one."""
    logprobs: tuple[float | None, ...] | None = attrs.field(default=None, converter=_logprobs)
    """One natural-log probability for each completion id; None where the engine gave none."""
    truncated: bool = attrs.field(default=False, validator=_is_a(bool))
    """Whether the turn was cut short, so that no stop was sampled."""
    key: str | None = attrs.field(default=None, validator=_is_a(str, type(None)))
    """What the prompt was rendered with: see `render_key`."""
    prompt_ledger: Ledger = attrs.field(validator=_is_a(Ledger))
    """Where each prompt id comes from; a prompt rendered from messages where nothing else is said."""
    messages: Messages = attrs.field(init=False, eq=False)
    """Prompt and completion together."""
    ids: Ids = attrs.field(init=False, eq=False)
    """Prompt and completion ids together: what the next prompt begins with."""

    @prompt_ledger.default
    def _rendered(self) -> Ledger:
        return Ledger.prompt(len(self.prompt_ids))

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
                f"logprobs has {len(logprobs)} values for {len(self.completion_ids)} completion_ids: "
                "give one for each id (None where there is none), or leave logprobs out"
            )
        for position, value in enumerate(logprobs or ()):
            if not is_number(value):
                raise InputError(f"logprobs[{position}] is {value!r:.60}: give a number or None")

    @prompt_ledger.validator
    def _count_ledger(self, _: Any, ledger: Ledger) -> None:
        if len(ledger) != len(self.prompt_ids):
            raise InputError(f"prompt_ledger covers {len(ledger)} ids, prompt_ids has {len(self.prompt_ids)}")

    @property
    def ledger(self) -> Ledger:
        """Where each of `ids` comes from."""
        return self.prompt_ledger.then((Origin.SAMPLED, len(self.completion_ids)))

    @property
    def stop(self) -> int | None:
        """The sampled stop: the last id of a turn that was not cut short."""
        return None if self.truncated or not self.completion_ids else self.completion_ids[-1]

    def __repr__(self) -> str:
        return (
            f"Step({len(self.prompt)} + {len(self.completion)} messages, "
            f"{len(self.prompt_ids)} + {len(self.completion_ids)} ids{', truncated' * self.truncated})"
        )


def _one_part(items: Shared[T]) -> Sequence[T]:
    """Return ids or messages as a part that another chain may hold."""
    return items.part if items.parent is None else tuple(items)
