"""A step, and what a trainer must know beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from ..errors import InputError
from ..ids import Ids
from ..step import Step, is_number
from .experts import RoutedExperts
from .weights import WeightVersion, ordered

CUT_SHORT = ("length", "abort")
"""Finish reasons of a turn that sampled no stop."""


class Ending(Enum):
    """How a turn ended, as far as training cares."""

    WHOLE = "it sampled its stop"
    TRUNCATED = "it was cut short, by length above all"
    ABORTED = "it was aborted"
    EMPTY = "it sampled nothing"


def _listed(versions: Sequence[WeightVersion]) -> tuple[WeightVersion, ...]:
    given: object = versions
    if not isinstance(given, list | tuple):
        raise InputError(f"weight_versions is {given!r:.60}: give a list of WeightVersion")
    return tuple(given)


def _mapped(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    given: object = metadata
    if not isinstance(given, Mapping):
        raise InputError(f"metadata is {given!r:.60}: give a mapping")
    return dict(given)


@attrs.frozen(kw_only=True)
class StoredCall:
    """A model call by its name. Checked once; it does not change.

    Raises `InputError` where a part does not fit the step.

    >>> step = Step(prompt=[{"role": "user", "content": "hi"}],
    ...             completion=[{"role": "assistant", "content": "hello"}],
    ...             prompt_ids=[1, 2, 3], completion_ids=[4, 5])
    >>> call = StoredCall(name="a", step=step, finish_reason="stop", reward=1.0)
    >>> call.ids, call.ending.name, call.key
    (Ids([1, 2, 3, 4, 5]), 'WHOLE', (0, 'a'))
    """

    name: str = attrs.field()
    """Unique in a forest: an engine's response id, or a number of the caller's."""
    step: Step = attrs.field()
    order: int = attrs.field(default=0)
    """When the call was committed, by any count that grows; equal ones are told apart by name."""
    finish_reason: str | None = attrs.field(default=None)
    """As the engine said; `length` and `abort` mean that the turn was cut short."""
    weight_versions: tuple[WeightVersion, ...] = attrs.field(default=(), converter=_listed)
    """Which weights sampled which runs of the completion's ids."""
    routed_experts: RoutedExperts | None = attrs.field(default=None)
    """Rows aligned to the call's ids."""
    reward: float | None = attrs.field(default=None)
    metadata: Mapping[str, Any] = attrs.field(factory=dict, converter=_mapped)
    """The caller's own, handed through as it is."""

    @name.validator
    def _is_name(self, _: object, value: object) -> None:
        if not isinstance(value, str) or not value:
            raise InputError(f"name is {value!r:.60}: give a string that no other call has")

    @step.validator
    def _is_step(self, _: object, value: object) -> None:
        if not isinstance(value, Step):
            raise InputError(f"call {self.name!r}: step is {type(value).__name__}: give a Step")

    @order.validator
    def _is_order(self, _: object, value: object) -> None:
        if type(value) is not int:
            raise InputError(f"call {self.name!r}: order is {value!r:.60}: give a whole number")

    @finish_reason.validator
    def _is_reason(self, _: object, value: object) -> None:
        if not isinstance(value, str | None):
            raise InputError(f"call {self.name!r}: finish_reason is {value!r:.60}: give a string or None")
        if value in CUT_SHORT and not self.step.truncated:
            raise InputError(f"call {self.name!r} finished by {value}: make its step with truncated=True")

    @weight_versions.validator
    def _follow(self, _: object, value: tuple[object, ...]) -> None:
        for run in value:
            if not isinstance(run, WeightVersion):
                raise InputError(f"call {self.name!r}: weight_versions holds {run!r:.60}: give WeightVersion")
        ordered(self.weight_versions, len(self.step.completion_ids))

    @routed_experts.validator
    def _is_aligned(self, _: object, value: object) -> None:
        if not isinstance(value, RoutedExperts | None):
            raise InputError(f"call {self.name!r}: routed_experts is {value!r:.60}: give RoutedExperts")
        if value is not None and value.stop > len(self.ids):
            raise InputError(
                f"call {self.name!r}: routed experts cover positions {value.start} to {value.stop} "
                f"of {len(self.ids)} ids"
            )

    @reward.validator
    def _is_number(self, _: object, value: object) -> None:
        if not is_number(value):
            raise InputError(f"call {self.name!r}: reward is {value!r:.60}: give a number or None")

    @property
    def key(self) -> tuple[int, str]:
        """What calls are ordered by."""
        return self.order, self.name

    @property
    def ids(self) -> Ids:
        """Prompt and completion ids."""
        return self.step.ids

    @property
    def start(self) -> int:
        """Where the completion begins in `ids`."""
        return self.step.prompt_ids.length

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.step.ids.length

    @property
    def ending(self) -> Ending:
        """How the turn ended."""
        if self.start == self.stop:
            return Ending.EMPTY
        if self.finish_reason == "abort":
            return Ending.ABORTED
        return Ending.TRUNCATED if self.step.truncated else Ending.WHOLE
