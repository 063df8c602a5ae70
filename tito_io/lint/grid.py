"""Arrange findings as a grid: one row for what follows a turn, one column for what the turn is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from attrs import frozen

from .advice import COLUMNS, FOLLOWING, column
from .report import Finding, Look


class State(Enum):
    """How a finding is shown, the worst first."""

    REFUSED = "refused"
    REJECTED = "rejected"
    REWRITTEN = "kept"
    EXACT = "exact"

    @classmethod
    def of(cls, finding: Finding) -> State:
        """Return the state of a finding."""
        if finding.refused:
            return cls.REJECTED if finding.rejected else cls.REFUSED
        return cls.REWRITTEN if finding.history_rewritten else cls.EXACT


LEGEND = {
    State.EXACT: "every sampled id is kept, and a fresh render is the same",
    State.REWRITTEN: "every sampled id is kept; a fresh render would have changed some",
    State.REFUSED: "the next prompt cannot be made of ids; it is sent as messages",
    State.REJECTED: "the template itself rejects such a conversation",
}
"""The meaning of each state, the best first."""
SHARES = (
    "two of the cell's four turns are in this state, and the others in a better one; they differ in whether "
    "they stand in a tool loop, in their content and, where cut short, in reasoning and calls"
)
"""The meaning of a cell such as `refused 2 of 4`."""


@frozen
class Cell:
    """All findings of one row and column: in a tool loop and not, with each kind of content."""

    findings: tuple[Finding, ...]

    @property
    def state(self) -> State | None:
        """The worst state, None without findings."""
        states = {State.of(one) for one in self.findings}
        return next((state for state in State if state in states), None)

    @property
    def text(self) -> str:
        """The worst state in words, with its number of findings if not all are in it."""
        if self.state is None:
            return ""
        share = f" {self.count} of {len(self.findings)}" if self.count < len(self.findings) else ""
        return f"{self.state.value}{share}"

    @property
    def count(self) -> int:
        """How many findings are in the worst state."""
        return sum(State.of(one) is self.state for one in self.findings)


@frozen
class GridRow:
    """What follows the turn, and one cell per column."""

    title: str
    cells: tuple[Cell, ...]


@frozen
class Grid:
    """The columns that have findings, and the rows."""

    columns: tuple[str, ...]
    rows: tuple[GridRow, ...]


def grid(look: Look) -> Grid:
    """Return the findings of one rendering as a grid."""
    columns = tuple(name for name in COLUMNS if any(column(one) == name for one in look.findings))
    rows = []
    for shape in dict.fromkeys(one.following for one in look.findings):
        here = [one for one in look.findings if one.following == shape]
        cells = tuple(Cell(tuple(one for one in here if column(one) == name)) for name in columns)
        rows.append(GridRow(FOLLOWING.get(shape, shape), cells))
    return Grid(columns, tuple(rows))


def counts(findings: Iterable[Finding]) -> Counter[State]:
    """Return how many findings are in each state."""
    return Counter(map(State.of, findings))
