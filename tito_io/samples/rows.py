"""What became of a file's conversations, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tito_core import InputError
from tito_core.samples import Forest, LeaveOutReason, RowSet, SampleOptions

from .conversation import Problem
from .entry import Entry, entries
from .read import StoredConversation


@attrs.define
class FileTally:
    """Numbers that add up over conversations, whoever counted them."""

    conversations: int = 0
    calls: int = 0
    sampled: int = 0
    """Sampled ids of all calls."""
    rows: int = 0
    ids: int = 0
    """Ids of all rows."""
    trained: int = 0
    """Those of them that train; with `untrained` they are all that was sampled."""
    untrained: Counter[str] = attrs.field(factory=Counter)
    """Sampled ids that train in no row, by the reason's name."""
    without_row: int = 0
    """Leaves, or calls, that would have given a row that trains nothing."""
    problems: int = 0
    """What could not be read, or gave no row by an error."""

    def add(self, forest: Forest, made: RowSet) -> None:
        """Count a conversation."""
        self.conversations += 1
        self.calls += len(forest)
        self.sampled += sum(call.stop - call.start for call in forest.calls)
        self.rows += len(made.rows)
        self.ids += sum(map(len, made.rows))
        self.trained += sum(row.trained for row in made.rows)
        self.without_row += len(made.without_row)
        for one in made.untrained:
            self.untrained[one.why.name.lower()] += one.stop - one.start

    def join(self, other: FileTally) -> None:
        """Add what somebody else counted."""
        for field in attrs.fields(FileTally):
            name = field.name
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def rowless(self) -> str | None:
        """Why there is no row at all; None where there are some, and where the problems say why."""
        if self.rows or (self.problems and not self.calls):
            return None
        if not self.sampled:
            return "no rows: no call in it sampled anything"
        reasons = "; ".join(
            f"{name} {count:,}: {LeaveOutReason[name.upper()].value}"
            for name, count in self.untrained.items()
        )
        return f"no rows: all {self.sampled:,} sampled ids are left out ({reasons})"

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain data."""
        return {**attrs.asdict(self, recurse=False), "untrained": dict(sorted(self.untrained.items()))}

    def table(self, title: str) -> Table:
        """Return the numbers for people."""
        made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_header=False, pad_edge=False)
        made.add_column(no_wrap=True)
        made.add_column(justify="right", no_wrap=True)
        made.add_column(style="dim")
        for name, number, told in self._lines():
            style = "red" if name == "problems" else None
            made.add_row(name, f"{number:,}", told, style=style)
        return made

    def _lines(self) -> list[tuple[str, int, str]]:
        untrained = [
            (f"  {name}", count, LeaveOutReason[name.upper()].value)
            for name, count in sorted(self.untrained.items())
        ]
        problems = [("problems", self.problems, "the lines above say which")] * bool(self.problems)
        return [
            ("conversations", self.conversations, ""),
            ("calls", self.calls, ""),
            ("sampled ids", self.sampled, ""),
            ("rows", self.rows, ""),
            ("ids", self.ids, "in all rows"),
            ("trained ids", self.trained, "each in one row"),
            ("untrained ids", self.untrained.total(), "sampled, and in no row trained"),
            *untrained,
            ("leaves without row", self.without_row, "they would train nothing"),
            *problems,
        ]


@attrs.frozen
class ConversationRows:
    """The rows of a conversation, with what they amount to."""

    entries: tuple[Entry, ...]
    tally: FileTally


def made(
    found: Iterable[StoredConversation | Problem], options: SampleOptions
) -> Iterator[ConversationRows | Problem]:
    """Yield the rows of each conversation in its turn.

    A conversation of which the kernel can make no rows, by two different rewards for example, is a problem
    at its first line.
    """
    for one in found:
        if isinstance(one, Problem):
            yield one
            continue
        try:
            rows, sampled = entries(one, options)
        except InputError as error:
            yield Problem(one.first, f"conversation {one.name!r:.60}: {error}")
            continue
        tally = FileTally()
        tally.add(one.forest, sampled)
        yield ConversationRows(tuple(rows), tally)
