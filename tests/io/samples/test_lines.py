"""The bounds of lines that pages state."""

from __future__ import annotations

from tests.faults.fault import ROOT
from tito_io.cli.options import LONGEST_LINE
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.lines import LINES, MAX_LINE, RATIOS, VALUES


def test_a_page_says_how_long_a_line_may_be() -> None:
    page = " ".join((ROOT / "docs/howto/formats.md").read_text().split())
    assert f"A line may have {MAX_LINE >> 20} MiB (`--max-line BYTES`)" in page
    zst, gz = RATIOS[".zst"], RATIOS[".gz"]
    assert f"a byte of `.zst` may become {zst:,} bytes, and a byte of `.gz` {gz}" in page
    assert f"{LINES:,} lines" in page
    assert f"{VALUES:,} values" in page
    assert ReadOptions().max_line == LONGEST_LINE == MAX_LINE
