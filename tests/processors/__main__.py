"""Print for each processor and conversation whether its ids are exact, refused or wrong.

python -m tests.processors [KIND ...]
"""

from __future__ import annotations

import sys
from collections import Counter

from rich.console import Console
from rich.table import Table

from tito_io.families import Family

from .kinds import KINDS, processor_of
from .shapes import SHAPES, Verdict, judged


def main(names: list[str]) -> int:
    """Print the table; return 1 if something is wrong."""
    table = Table("processor", *SHAPES)
    verdicts: list[Verdict] = []
    for name in names or KINDS:
        kind = KINDS[name]
        processor = processor_of(kind)
        family = Family.of(processor)
        row = [judged(family, processor, turns, **kind.call) for turns in SHAPES.values()]
        table.add_row(name, *(one.word for one in row))
        verdicts += row
    console = Console(width=200)
    console.print(table)
    for why, count in Counter(one.why for one in verdicts if one.why).most_common():
        console.print(f"{count:4} refused: {why}")
    words = Counter(one.word for one in verdicts)
    console.print(", ".join(f"{words[word]} {word}" for word in ("exact", "refused", "wrong")))
    return int(words["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
