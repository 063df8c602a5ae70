"""Small forests to make rows of, and row sets as text."""

from __future__ import annotations

from tests.core.samples.calls import call
from tito_core.samples.forest import Forest
from tito_core.samples.rows import RowSet

ROOT = call("a", [1], [2, 3], reward=1.0)
LEFT = call("b", [1, 2, 3, 4], [5])
RIGHT = call("c", [1, 2, 3, 6], [7, 8])
FORK = Forest.of([ROOT, LEFT, RIGHT])


def shown(row_set: RowSet) -> dict[str, str]:
    """Return each row's ids, those that train in brackets."""
    return {row.name: " ".join(map(_shown, row.ids, row.loss_mask)) for row in row_set.rows}


def _shown(number: int, bit: int) -> str:
    return f"[{number}]" if bit else str(number)


def missing(row_set: RowSet) -> list[tuple[str, int, int, str]]:
    return [(one.call, one.start, one.stop, one.why.name) for one in row_set.untrained]


CUT = call("b", [1, 2, 3, 4], [5, 6], truncated=True, finish_reason="length")
CHAIN = Forest.of([ROOT, CUT, call("c", [1, 2, 3, 4, 5, 6, 2, 7], [8])])
