"""Findings as a grid: a row for what follows a turn, a column for what the turn is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from attrs import frozen

from .advice import COLUMNS, FOLLOWING, column
from .report import Finding, Look


class State(Enum):
    """What a finding looks like, the worst first."""

    REFUSED = "refused"
    REJECTED = "rejected"
    REWRITTEN = "exact ~"
    EXACT = "exact"

    @classmethod
    def of(cls, finding: Finding) -> State:
        """Return the state of a finding."""
        if finding.refused:
            return cls.REJECTED if finding.rejected else cls.REFUSED
        return cls.REWRITTEN if finding.history_rewritten else cls.EXACT


LEGEND = {
    State.EXACT: "every sampled id is kept, and a fresh render would be the same",
    State.REWRITTEN: "every sampled id is kept; a fresh render of the history would change it",
    State.REFUSED: "cannot go by ids, and goes by messages instead",
    State.REJECTED: "the template itself rejects such a conversation",
}
"""The states, the best first, with what each means."""


@frozen
class Cell:
    """All findings of one place; those in a tool loop, and with other kinds of content, count apart."""

    findings: tuple[Finding, ...]

    @property
    def state(self) -> State | None:
        """The worst state, None where there are no findings."""
        states = {State.of(one) for one in self.findings}
        return next((state for state in State if state in states), None)

    @property
    def text(self) -> str:
        """The state in words, with how many are in it where not all are."""
        if self.state is None:
            return ""
        of = f" {self.count}/{len(self.findings)}" if self.count < len(self.findings) else ""
        return f"{self.state.value}{of}"

    @property
    def count(self) -> int:
        """How many findings are in that state."""
        return sum(State.of(one) is self.state for one in self.findings)


@frozen
class GridRow:
    """What follows, and a cell for each column."""

    title: str
    cells: tuple[Cell, ...]


@frozen
class Grid:
    """The columns that have something in them, and the rows."""

    columns: tuple[str, ...]
    rows: tuple[GridRow, ...]


def grid(look: Look) -> Grid:
    """Return the findings of a look as a grid."""
    columns = tuple(name for name in COLUMNS if any(column(one) == name for one in look.findings))
    shapes = dict.fromkeys(one.following for one in look.findings)
    return Grid(columns, tuple(_row(shape, columns, look.findings) for shape in shapes))


def _row(shape: str, columns: Sequence[str], findings: Sequence[Finding]) -> GridRow:
    here = [one for one in findings if one.following == shape]
    cells = (Cell(tuple(one for one in here if column(one) == name)) for name in columns)
    return GridRow(FOLLOWING.get(shape, shape), tuple(cells))


def counts(findings: Iterable[Finding]) -> Counter[State]:
    """Return how many findings are in each state."""
    return Counter(map(State.of, findings))
