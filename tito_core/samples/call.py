"""Stored model calls: a step with its name, order, reward, weight versions and routed experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import NoneType
from typing import Any

import attrs

from ..checks import require
from ..errors import InputError
from ..ids import Ids
from ..step import Step, is_number
from .experts import RoutedExperts

CUT_SHORT = ("length", "abort")
"""Finish reasons of a turn that sampled no stop."""


class Ending(Enum):
    """How a turn ended."""

    WHOLE = "the model sampled its stop"
    TRUNCATED = "the turn was cut short, normally by length"
    ABORTED = "the turn was aborted"
    EMPTY = "the model sampled no id"


@attrs.frozen(kw_only=True)
class WeightVersion:
    """The weights that sampled a run of completion ids.

    Attributes:
        version: Name of the weights.
        start: First position in `completion_ids` that they sampled.
        stop: Position after the last one.

    Raises:
        InputError: `version` is not a string, or a position is not a whole number of at least 0.
    """

    version: str = attrs.field()
    start: int = attrs.field()
    stop: int = attrs.field()

    @version.validator
    def _is_text(self, _: object, value: object) -> None:
        require(value, str, "version", "the name of the weights as a string")

    @start.validator
    @stop.validator
    def _is_position(self, field: attrs.Attribute[int], value: object) -> None:
        if type(value) is not int or value < 0:
            raise InputError(
                f"{field.name} of a weight version is {value!r:.60}: give an index of completion_ids"
            )


def weight_runs(versions: Sequence[WeightVersion], length: int) -> Iterator[tuple[str | None, int]]:
    """Yield (version, number of ids) over a completion of `length` ids; version None where unknown.

    >>> list(weight_runs([WeightVersion(version="a", start=1, stop=3)], 5))
    [(None, 1), ('a', 2), (None, 2)]
    """
    end = 0
    for run in versions:
        yield None, run.start - end
        yield run.version, run.stop - run.start
        end = run.stop
    yield None, length - end


def _to_tuple(versions: Sequence[WeightVersion]) -> tuple[WeightVersion, ...]:
    require(versions, (list, tuple), "weight_versions", "a list of WeightVersion")
    return tuple(versions)


def _to_dict(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    require(metadata, Mapping, "metadata", "a mapping")
    return dict(metadata)


def _is_a(*kinds: type, expected: str) -> Callable[[StoredCall, attrs.Attribute[Any], object], None]:
    """Return a validator that names the call and the field in its error."""

    def validate(call: StoredCall, field: attrs.Attribute[Any], value: object) -> None:
        require(value, kinds, f"call {call.name!r}: {field.name}", expected)

    return validate


@attrs.frozen(kw_only=True)
class StoredCall:
    """One model call as it is stored for training. It is checked once and does not change.

    Attributes:
        name: Name that no other call of the forest has, such as the engine's response id.
        step: Messages and ids that were sent and sampled.
        order: When the call was committed, by any count that grows. Calls of equal order sort by name.
        finish_reason: As the engine gave it. `length` and `abort` need a step with `truncated=True`.
        weight_versions: The weights that sampled each run of completion ids, in order, without overlap.
        routed_experts: Rows of expert choices, aligned to `ids`; None without any.
        reward: Reward of the call; None without one.
        metadata: The caller's own values, passed through unchanged.

    Raises:
        InputError: A value has the wrong type or does not fit the step.

    >>> step = Step(prompt=[{"role": "user", "content": "hi"}],
    ...             completion=[{"role": "assistant", "content": "hello"}],
    ...             prompt_ids=[1, 2, 3], completion_ids=[4, 5])
    >>> call = StoredCall(name="a", step=step, finish_reason="stop", reward=1.0)
    >>> call.ids, call.ending.name, call.key
    (Ids([1, 2, 3, 4, 5]), 'WHOLE', (0, 'a'))
    """

    name: str = attrs.field()
    step: Step = attrs.field(validator=_is_a(Step, expected="a Step"))
    order: int = attrs.field(default=0)
    finish_reason: str | None = attrs.field(
        default=None, validator=_is_a(str, NoneType, expected="a string or None")
    )
    weight_versions: tuple[WeightVersion, ...] = attrs.field(default=(), converter=_to_tuple)
    routed_experts: RoutedExperts | None = attrs.field(
        default=None, validator=_is_a(RoutedExperts, NoneType, expected="RoutedExperts or None")
    )
    reward: float | None = attrs.field(default=None)
    metadata: Mapping[str, Any] = attrs.field(factory=dict, converter=_to_dict)

    @name.validator
    def _is_name(self, _: object, value: object) -> None:
        if not isinstance(value, str) or not value:
            raise InputError(f"name is {value!r:.60}: give a string that no other call has")

    @order.validator
    def _is_order(self, _: object, value: object) -> None:
        # Not isinstance: True is an int, and would sort as 1.
        if type(value) is not int:
            raise InputError(f"call {self.name!r}: order is {value!r:.60}: give a whole number")

    @finish_reason.validator
    def _fits_step(self, _: object, value: object) -> None:
        if value in CUT_SHORT and not self.step.truncated:
            raise InputError(f"call {self.name!r} finished by {value}: make its step with truncated=True")

    @weight_versions.validator
    def _are_runs(self, _: object, value: tuple[WeightVersion, ...]) -> None:
        length, end = len(self.step.completion_ids), 0
        for index, run in enumerate(value):
            require(run, WeightVersion, f"call {self.name!r}: weight_versions[{index}]", "a WeightVersion")
            if not end <= run.start <= run.stop <= length:
                raise InputError(
                    f"call {self.name!r}: weight_versions[{index}] covers {run.start} to {run.stop} "
                    f"of {length} completion_ids, after {end}: give runs in order that do not overlap"
                )
            end = run.stop

    @routed_experts.validator
    def _is_aligned(self, _: object, value: RoutedExperts | None) -> None:
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
        """Sort key: order, then name."""
        return self.order, self.name

    @property
    def ids(self) -> Ids:
        """Prompt and completion ids."""
        return self.step.ids

    @property
    def start(self) -> int:
        """Position in `ids` where the completion begins."""
        return self.step.prompt_ids.length

    @property
    def stop(self) -> int:
        """Position in `ids` where the completion ends."""
        return self.step.ids.length

    @property
    def ending(self) -> Ending:
        """How the turn ended."""
        # Empty first: an aborted call that sampled nothing has no turn to train or to mask.
        if self.start == self.stop:
            return Ending.EMPTY
        if self.finish_reason == "abort":
            return Ending.ABORTED
        return Ending.TRUNCATED if self.step.truncated else Ending.WHOLE
