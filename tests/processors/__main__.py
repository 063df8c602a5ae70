"""Print for each processor and conversation whether its ids are exact, refused or wrong.

python -m tests.processors [KIND ...]

It ends with 1 if something is wrong, or refused where it need not be. Kinds are those of `kinds.py`; with
`TITO_FAMILIES` some have their real vocabulary and template, too.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .kinds import KINDS, REAL, processor_of, real
from .shapes import SHAPES, Verdict, picture, verdicts


def main(names: list[str]) -> int:
    """Print the table; return 1 if a verdict is not the expected one."""
    table = Table("processor", *SHAPES)
    found: list[Verdict] = []
    odd = []
    for name, processor, refused in _processors(names or list(KINDS)):
        row = verdicts(processor, picture, **KINDS[name].call)
        table.add_row(name, *(one.word for one in row.values()))
        found += row.values()
        odd += [
            f"{name}, {shape}: {one.word} {one.why}"
            for shape, one in row.items()
            if one.word != ("refused" if shape in refused else "exact")
        ]
    _print(table, found, odd)
    return int(bool(odd))


def _processors(names: list[str]) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Yield processors, and what they refuse: with a small vocabulary, and with their real one."""
    for name in names:
        yield name, processor_of(KINDS[name]), KINDS[name].refused
    families = os.environ.get("TITO_FAMILIES")
    for name in [one for one in names if one in REAL] if families else ():
        yield name, real(name, Path(families or "")), KINDS[name].refused + REAL[name][2]


def _print(table: Table, found: list[Verdict], odd: list[str]) -> None:
    console = Console(width=200)
    console.print(table)
    for why, count in Counter(one.why for one in found if one.why).most_common():
        console.print(f"{count:4} refused: {why}")
    words = Counter(one.word for one in found)
    console.print(", ".join(f"{words[word]} {word}" for word in ("exact", "refused", "wrong")))
    for line in odd:
        console.print(f"not as expected: {line}")


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m tests.processors", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"default: all of {', '.join(KINDS)}")
    chosen = parser.parse_args().kinds
    unknown = [name for name in chosen if name not in KINDS]
    if unknown:
        parser.error(f"KIND is {unknown[0]!r}: give some of {', '.join(KINDS)}")
    sys.exit(main(chosen))
