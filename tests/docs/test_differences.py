"""The pages about prompts and replies have the tables by which differences from engines are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.engines.difference_rows import Row
from tests.engines.parsers.compared import table as replies
from tests.engines.preprocessing.compare import table as prompts

PAGES = Path(__file__).parents[2] / "docs" / "reference"


def cells(name: str, *patterns: Sequence[str], why: str) -> str:
    """Return the row of a page."""
    given = (", ".join(f"`{one}`" for one in some) if tuple(some) != ("*",) else "all" for some in patterns)
    words = " ".join(why.split()).replace("|", "\\|")
    return f"| {' | '.join((name, *given, words))} |"


@pytest.mark.parametrize(
    ("page", "table", "keys"),
    [("prompts", prompts, ("engines", "shapes", "templates")), ("replies", replies, ("formats", "engines"))],
)
def test_a_page_has_the_rows_of_the_table_and_no_others(
    page: str, table: Callable[[], dict[str, Row]], keys: Sequence[str]
) -> None:
    lines = (PAGES / f"{page}.md").read_text(encoding="utf-8").splitlines()
    header = next(place for place, line in enumerate(lines) if line.startswith("| name |"))
    shown = [line for line in lines[header + 2 :] if line.startswith("| ")]
    assert shown == [
        cells(name, *(row.patterns.get(key, ("*",)) for key in keys), why=row.why)
        for name, row in table().items()
    ]
