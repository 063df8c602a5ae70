"""Results of runs: means over seeds, and differences of paired seeds, with intervals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import attrs

LAST = 10
"""The updates at the end of a run whose mean reward is its result; as many are its beginning."""
STUDENT = (
    12.71,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.16,
    2.145,
    2.131,
)
"""97.5 % quantiles of Student's t distribution, from one degree of freedom on; beyond them the last one."""


@attrs.frozen
class Estimate:
    """A mean over seeds, with half of its 95 % interval.

    Attributes:
        mean: The mean.
        half: Half the interval's width; None of fewer than two seeds.
        n: Number of seeds.
    """

    mean: float
    half: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Return the mean of one value a seed.

        >>> Estimate.of([1.0, 3.0])
        Estimate(mean=2.0, half=12.71, n=2)
        >>> Estimate.of([1.0])
        Estimate(mean=1.0, half=None, n=1)
        """
        n = len(values)
        if n < 2:  # noqa: PLR2004  # of one value there is no spread
            return cls(fmean(values), None, n)
        return cls(fmean(values), STUDENT[min(n - 1, len(STUDENT)) - 1] * stdev(values) / sqrt(n), n)

    def text(self, form: str = ".3f") -> str:
        """Format the mean and its interval.

        >>> Estimate.of([0.5, 0.5]).text(), Estimate.of([0.5]).text("+.2f")
        ('0.500 ± 0.000', '+0.50')
        """
        return format(self.mean, form) + (
            "" if self.half is None else f" ± {format(self.half, form.strip('+'))}"
        )


@attrs.frozen
class Result:
    """The updates of one run so far."""

    model: str
    setting: str
    arm: str
    seed: int
    updates: list[dict[str, Any]]

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return bool(self.updates) and len(self.updates) == self.updates[0]["of"]

    def mean(self, name: str) -> float:
        """Return the mean of a figure over all updates."""
        return fmean(float(line[name]) for line in self.updates)

    def share(self, part: str, whole: str) -> float:
        """Return the sum of a figure over all updates, as a share of another one's."""
        whole_sum = sum(float(line[whole]) for line in self.updates)
        return sum(float(line[part]) for line in self.updates) / max(whole_sum, 1.0)

    def first(self, name: str) -> float:
        """Return the mean of a figure over the first updates."""
        return fmean(float(line[name]) for line in self.updates[:LAST])

    def latest(self, name: str) -> float:
        """Return the mean of a figure over the last updates."""
        return fmean(float(line[name]) for line in self.updates[-LAST:])

    @property
    def last(self) -> float:
        """The mean reward of the last updates."""
        return self.latest("reward")

    @property
    def area(self) -> float:
        """The mean reward of all updates: the area under the curve, for each update."""
        return self.mean("reward")

    @property
    def largest(self) -> float:
        """The largest ratio of all updates."""
        return max(float(line["ratio_max"]) for line in self.updates)


def read(folder: Path) -> list[Result]:
    """Return the runs of a folder, in a fixed order."""
    found = []
    for file in sorted(folder.glob("*/*/*/seed-*/updates.jsonl")):
        model, setting, arm, seed = file.parent.relative_to(folder).parts
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        if lines:
            found.append(Result(model, setting, arm, int(seed.removeprefix("seed-")), lines))
    return sorted(found, key=lambda one: (one.model, one.setting, one.arm, one.seed))


def differences(runs: Sequence[Result], base: Sequence[Result], name: str) -> Estimate | None:
    """Return the mean difference of a property to the runs with the same seeds; None without a pair."""
    other = {one.seed: one for one in base}
    pairs = [getattr(one, name) - getattr(other[one.seed], name) for one in runs if one.seed in other]
    return Estimate.of(pairs) if pairs else None
