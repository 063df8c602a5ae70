"""Make the rows of stored conversations, and count what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import attrs
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tito_core import InputError
from tito_core.samples import Forest, LeaveOutReason, RowSet, SampleOptions

from .conversation import Problem
from .entry import Entry, entries
from .mask_sizes import MaskSizes
from .read import StoredConversation

T = TypeVar("T")
NOTES = {
    "row_ids": "in all rows",
    "trained_ids": "each in one row",
    "untrained_ids": "sampled, but trained in no row",
    "leaves_without_row": "would train nothing",
    "sampling_masks": "of sampled ids",
    "problems": "see the lines above",
}
"""Explanations in the table, by the name of the figure."""


@attrs.define
class Tally:
    """Counts that are shown as a table or as JSON, under the names of their attributes."""

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {name: _plain(value) for name, value in self._figures().items()}

    def table(self, title: str) -> Table:
        """Return the counts as a table for a terminal."""
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(style="dim")
        for name, value in self._figures().items():
            if name == "problems" and not value:
                continue
            count, parts = _parts(value)
            style = "red" if name == "problems" else None
            table.add_row(name.replace("_", " "), f"{count:,}", NOTES.get(name, ""), style=style)
            for part, text, note in parts:
                table.add_row(f"  {part}", text, note)
        return table

    def _figures(self) -> dict[str, Any]:
        """Return the attributes; sampling masks only where a call has one."""
        every = attrs.asdict(self, recurse=False)
        return {name: value for name, value in every.items() if value or not isinstance(value, MaskSizes)}


def _plain(value: Any) -> Any:
    if isinstance(value, MaskSizes):
        return value.figures()
    return dict(sorted(value.items())) if isinstance(value, Counter) else value


def _parts(value: Any) -> tuple[int, list[tuple[str, str, str]]]:
    """Return a count and what it consists of: names, texts and explanations."""
    if isinstance(value, MaskSizes):
        return value.masked_ids, value.lines()
    if not isinstance(value, Counter):
        return value, []
    reasons = sorted(value.items())
    lines = [(reason, f"{part:,}", LeaveOutReason[reason.upper()].value) for reason, part in reasons]
    return value.total(), lines


@attrs.define
class FileTally(Tally):
    """Counts over the conversations of a file; tallies of parts of a file add up.

    The names of these figures are the keys of the summary's JSON. The table shows them with spaces.

    Attributes:
        conversations: Conversations that rows were made of.
        calls: Their calls.
        sampled_ids: Ids that these calls sampled.
        rows: Rows that were made.
        row_ids: Ids of all rows.
        trained_ids: Sampled ids that train, each in one row.
        untrained_ids: Sampled ids that train in no row, by reason. With `trained_ids` they are `sampled_ids`.
        leaves_without_row: Leaves (or calls, with `--rows call`) whose row would train nothing.
        sampling_masks: How many ids the masks of sampled ids keep; left out of the summary without any.
        problems: Lines, parts of lines, conversations and rows that could not be read or written.
    """

    conversations: int = 0
    calls: int = 0
    sampled_ids: int = 0
    rows: int = 0
    row_ids: int = 0
    trained_ids: int = 0
    untrained_ids: Counter[str] = attrs.field(factory=Counter)
    leaves_without_row: int = 0
    sampling_masks: MaskSizes = attrs.field(factory=MaskSizes)
    problems: int = 0

    @classmethod
    def of(cls, forest: Forest, row_set: RowSet) -> FileTally:
        """Count a conversation and its rows."""
        untrained = Counter[str]()
        for one in row_set.untrained:
            untrained[one.why.name.lower()] += one.stop - one.start
        return cls(
            conversations=1,
            calls=len(forest),
            sampled_ids=sum(call.stop - call.start for call in forest.calls),
            rows=len(row_set.rows),
            row_ids=sum(map(len, row_set.rows)),
            trained_ids=sum(row.trained for row in row_set.rows),
            untrained_ids=untrained,
            leaves_without_row=len(row_set.without_row),
            sampling_masks=MaskSizes.of(forest.calls),
        )

    def join(self, other: FileTally) -> None:
        """Add the counts of another tally."""
        for field in attrs.fields(FileTally):
            name = field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def no_rows_reason(self) -> str | None:
        """Why there is no row at all; None if there are rows, or if the problems are the reason."""
        if self.rows or (self.problems and not self.calls):
            return None
        if not self.sampled_ids:
            return "no rows: no call sampled anything"
        reasons = "; ".join(
            f"{name} {count:,}: {LeaveOutReason[name.upper()].value}"
            for name, count in self.untrained_ids.items()
        )
        return f"no rows: all {self.sampled_ids:,} sampled ids are left out ({reasons})"


@attrs.frozen
class ConversationRows:
    """The rows of one conversation.

    Attributes:
        entries: Its rows, each with its place in the file.
        tally: Their counts.
    """

    entries: tuple[Entry, ...]
    tally: FileTally


def make_each(
    stored: Iterable[StoredConversation | Problem], make: Callable[[StoredConversation], T]
) -> Iterator[T | Problem]:
    """Yield what is made of each conversation; problems are passed on.

    A conversation that nothing can be made of becomes a problem at its first line.
    """
    for one in stored:
        if isinstance(one, Problem):
            yield one
            continue
        try:
            yield make(one)
        except InputError as error:
            yield Problem(one.first, f"conversation {one.name!r:.60}: {error}")


def to_rows(
    stored: Iterable[StoredConversation | Problem], options: SampleOptions
) -> Iterator[ConversationRows | Problem]:
    """Yield the rows of each conversation in order; problems are passed on.

    A conversation that no rows can be made of, for example because of two different rewards, becomes a
    problem at its first line.
    """

    def make(one: StoredConversation) -> ConversationRows:
        rows, row_set = entries(one, options)
        return ConversationRows(tuple(rows), FileTally.of(one.forest, row_set))

    return make_each(stored, make)
