"""The page about drift and its pictures are what their program makes of the data, byte for byte."""

from __future__ import annotations

from pathlib import Path

from benchmarks.drift.models.counts import from_csv
from benchmarks.drift.models.page import DATA, written

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_page_is_made_of_its_data() -> None:
    for name, text in written(from_csv(DOCS / DATA)).items():
        assert (DOCS / name).read_text("utf-8") == text, name
