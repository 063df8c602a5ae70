"""Numbers that an option takes."""

from __future__ import annotations

import math
from typing import Any

import click


class WholeRange(click.IntRange):
    """A range of integers, whose complaints say `integer` and not `integer range`."""

    name = "integer"


class FiniteRange(click.FloatRange):
    """A range of numbers; `nan`, which is in every range as comparisons go, is none."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found
