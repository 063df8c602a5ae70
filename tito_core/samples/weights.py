"""Which weights sampled which ids of a completion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ..errors import InputError


@attrs.frozen(kw_only=True)
class WeightVersion:
    """Which weights sampled a run of a completion's ids, half open."""

    version: str = attrs.field()
    start: int = attrs.field()
    stop: int = attrs.field()

    @version.validator
    def _is_text(self, _: object, value: object) -> None:
        if not isinstance(value, str):
            raise InputError(f"version is {value!r:.60}: give the name of the weights as a string")

    @start.validator
    @stop.validator
    def _is_place(self, _: object, value: object) -> None:
        if type(value) is not int or value < 0:
            raise InputError(f"a weight version stands at {value!r:.60}: give a position in completion_ids")


def ordered(versions: Sequence[WeightVersion], length: int) -> None:
    """Check that runs follow each other within `length` ids; what no run covers is unknown.

    Raises `InputError` where they overlap or reach beyond the ids.
    """
    end = 0
    for index, run in enumerate(versions):
        if not end <= run.start <= run.stop <= length:
            raise InputError(
                f"weight_versions[{index}] covers {run.start} to {run.stop} of {length} completion_ids, "
                f"after {end}: runs follow each other and end with the ids"
            )
        end = run.stop


def runs(versions: Sequence[WeightVersion], length: int) -> Iterator[tuple[str | None, int]]:
    """Yield (version, number of ids) over a whole completion, None where nobody said.

    >>> list(runs([WeightVersion(version="a", start=1, stop=3)], 5))
    [(None, 1), ('a', 2), (None, 2)]
    """
    end = 0
    for run in versions:
        yield None, run.start - end
        yield run.version, run.stop - run.start
        end = run.stop
    yield None, length - end
