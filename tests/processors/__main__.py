"""Print for each processor and conversation whether its ids are exact, refused or wrong.

python -m tests.processors [KIND ...]
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .kinds import KINDS, REAL, processor_of, real
from .shapes import SHAPES, Verdict, judged, picture


def main(names: list[str]) -> int:
    """Print the table; return 1 if something is wrong."""
    table = Table("processor", *SHAPES)
    verdicts: list[Verdict] = []
    for name, processor in _processors(names or list(KINDS)):
        call = KINDS[name].call
        row = [judged(processor, turns, picture, **call) for turns in SHAPES.values()]
        table.add_row(name, *(one.word for one in row))
        verdicts += row
    console = Console(width=200)
    console.print(table)
    for why, count in Counter(one.why for one in verdicts if one.why).most_common():
        console.print(f"{count:4} refused: {why}")
    words = Counter(one.word for one in verdicts)
    console.print(", ".join(f"{words[word]} {word}" for word in ("exact", "refused", "wrong")))
    return int(words["wrong"] > 0)


def _processors(names: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield processors with a small vocabulary, and with their real one where `TITO_FAMILIES` has it."""
    for name in names:
        yield name, processor_of(KINDS[name])
    families = os.environ.get("TITO_FAMILIES")
    for name in names if families else ():
        if name in REAL:
            yield name, real(name, Path(families or ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
