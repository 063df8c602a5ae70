"""The pages about prompts and replies have the tables by which differences from engines are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.engines.parsers.compared import table as replies
from tests.engines.preprocessing.compare import table as prompts

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def cells(name: str, *patterns: Sequence[str], why: str) -> str:
    """Return the row of a page."""
    given = (", ".join(f"`{one}`" for one in some) if tuple(some) != ("*",) else "all" for some in patterns)
    words = " ".join(why.split()).replace("|", "\\|")
    return f"| {' | '.join((name, *given, words))} |"


def prompt_rows() -> Iterator[str]:
    for name, row in prompts().items():
        yield cells(name, row.engines, row.shapes, row.templates, why=row.why)


def reply_rows() -> Iterator[str]:
    for name, row in replies().items():
        yield cells(name, row.formats, row.engines, why=row.why)


@pytest.mark.parametrize(("page", "rows"), [("prompts", prompt_rows), ("replies", reply_rows)])
def test_a_page_has_the_rows_of_the_table_and_no_others(page: str, rows: Callable[[], Iterator[str]]) -> None:
    lines = (PAGES / f"{page}.md").read_text(encoding="utf-8").splitlines()
    header = next(place for place, line in enumerate(lines) if line.startswith("| name |"))
    shown = [line for line in lines[header + 2 :] if line.startswith("| ")]
    assert shown == list(rows())
