"""Counts by cell and turn: what is stored beside the page, and what all of its figures are sums of."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from tito_core import InputError
from tito_core.drift.breaks import Cause

CAUSES = tuple(cause.name.lower() for cause in Cause)
NAMES = (
    "conversations", "drifted", "ended", "called", "by_messages", "sampled_ids", "prompt_ids", "changed_ids",
    "first_changed", "recomputed_ids", "sampled_in_cut", "changed_in_cut",
)  # fmt: skip
"""Names of counts, beside those of `CAUSES`. All are sums over the conversations of a cell.


- `conversations`: conversations with this turn.
- `drifted`: those whose history has drifted by this turn: in its prompt, or in an earlier one.
- `ended`: turns that ended with a stop, before their limit.
- `called`: turns with a tool call.
- `by_messages`: prompts that do not begin with the ids of the turn before: they went by messages.
- `sampled_ids`, `prompt_ids`: ids of the turn and of its prompt.
- `changed_ids`: ids of the prompt that a fresh render does not repeat.
- `first_changed`: ids before the first change, of prompts with one.
- `recomputed_ids`: ids that an engine with a prefix cache computes more if prompts go as messages;
  0 of those that did.
- `sampled_in_cut`, `changed_in_cut`: ids sampled in turns that were cut, and those of them that change.
- a cause: sampled ids that change for it, counted at the first prompt that shows the change.
"""
COLUMNS = {name: name for name in NAMES} | {f"{cause}_ids": cause for cause in CAUSES}
"""Columns of the file, and the counts in them. One of the causes has the name of a field."""


@attrs.frozen(order=True)
class Cell:
    """One turn of the conversations with the same settings.

    Attributes:
        model: The model that sampled.
        family: Tokenizer and template, where they are not the model's own; else empty.
        temperature: Sampling temperature.
        language: `english`, `code` or `other`.
        tools: Whether tools were offered.
        limit: Most ids of a turn.
        turn: The turn, from 1.
    """

    model: str
    family: str
    temperature: float
    language: str
    tools: bool
    limit: int
    turn: int


Counts: TypeAlias = "Mapping[Cell, Counter[str]]"
FIELDS = tuple(field.name for field in attrs.fields(Cell))


def summed(counts: Counts, *names: str) -> dict[tuple[Any, ...], Counter[str]]:
    """Add up the counts of cells that agree in the named fields.

    >>> cells = [Cell("m", "", 0.0, "code", False, 48, turn) for turn in (1, 2)]
    >>> summed({cell: Counter(drifted=cell.turn) for cell in cells}, "model")
    {('m',): Counter({'drifted': 3})}
    """
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    for cell, counted in sorted(counts.items(), key=lambda item: item[0]):
        sums.setdefault(tuple(getattr(cell, name) for name in names), Counter()).update(counted)
    return sums


def where(counts: Counts, **fields: Any) -> Counts:
    """Return the cells with these values."""
    return {
        cell: counted
        for cell, counted in counts.items()
        if all(getattr(cell, name) == value for name, value in fields.items())
    }


def to_csv(counts: Counts) -> str:
    """Return counts as CSV: a line for each cell."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*FIELDS, *COLUMNS))
    for cell, counted in sorted(counts.items(), key=lambda item: item[0]):
        values = attrs.astuple(cell)
        plain = (int(value) if isinstance(value, bool) else value for value in values)
        writer.writerow((*plain, *(counted[name] for name in COLUMNS.values())))
    return file.getvalue()


def from_csv(path: Path) -> dict[Cell, Counter[str]]:
    """Read what `to_csv` wrote; raises `InputError` for other files."""
    counts: dict[Cell, Counter[str]] = {}
    try:
        lines: Iterable[dict[str, str]] = csv.DictReader(StringIO(path.read_text("utf-8")))
        for line in lines:
            cell = Cell(
                model=line["model"],
                family=line["family"],
                temperature=float(line["temperature"]),
                language=line["language"],
                tools=line["tools"] == "1",
                limit=int(line["limit"]),
                turn=int(line["turn"]),
            )
            counts[cell] = Counter({name: int(line[column]) for column, name in COLUMNS.items()})
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path}: {error}: give the CSV file that this command wrote") from None
    return counts
