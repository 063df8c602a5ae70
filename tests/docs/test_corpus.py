"""The figures of docs/reference/templates.md are those of the page of the corpus."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "reference"
CELL = re.compile(r"<t[dh][^>]*>([^<]*)</t[dh]>")


def test_the_results_are_those_of_the_page() -> None:
    page = (DOCS / "corpus.html").read_text(encoding="utf-8")
    table = page[page.index("<tr><th>asked</th>") : page.index("</table>")]
    rows = [CELL.findall(line) for line in table.splitlines()]
    assert len(rows) == 6
    text = (DOCS / "templates.md").read_text(encoding="utf-8")
    for row in rows:
        assert f"| {' | '.join(row)} |\n" in text
    profile = dict(zip(rows[0], rows[2], strict=True))
    for verdict, words in (("exact", "exact"), ("refused", "refused"), ("no stop", "without a stop"),
                           ("dropped", "dropped"), ("wrong", "wrong")):  # fmt: skip
        assert f"- **{profile[verdict]} {words}**: " in text
