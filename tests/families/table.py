"""Print the table of families and shapes:  TITO_FAMILIES=DIR python -m tests.families.table."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.families.cells import Cell, cells, template_files

LETTER = {"exact": "=", "refused": "r", "WRONG": "X", "unrenderable": "."}


def folders(root: Path) -> list[Path]:
    """Return the model folders, those that have a vocabulary."""
    return sorted(path.parent for path in root.glob("*/tokenizer.json"))


def gather(root: Path) -> list[Cell]:
    """Judge every cell, showing progress."""
    found: list[Cell] = []
    work = [(folder, template) for folder in folders(root) for template in template_files(folder)]
    for folder, template in track(work, "templates", console=Console(stderr=True)):
        found.extend(cells(folder, template))
    return found


def show(found: list[Cell], console: Console) -> None:
    """Print a row a template, and why cells are refused."""
    shapes = list(dict.fromkeys(cell.shape for cell in found))
    table = Table(title="= exact   r refused   . the template cannot render it   X wrong")
    table.add_column("template")
    for number in range(1, len(shapes) + 1):
        table.add_column(str(number))
    rows: dict[str, dict[str, str]] = {}
    for cell in found:
        rows.setdefault(f"{cell.family}/{cell.template}", {})[cell.shape] = LETTER[cell.verdict]
    for name, row in rows.items():
        table.add_row(name, *(row[shape] for shape in shapes))
    console.print(table)
    for number, shape in enumerate(shapes, 1):
        console.print(f"{number:3} {shape}")
    for (family, reason), count in Counter((c.family, c.reason) for c in found if c.reason).items():
        console.print(f"{count:3} {family}: {reason}", markup=False)
    asked = [cell.questions for cell in found if cell.questions]
    console.print(Counter(cell.verdict for cell in found))
    console.print(f"questions: median {median(asked):.0f}, most {max(asked)}")


def main() -> int:
    """Print the table; 1 where a cell is wrong."""
    root = Path(os.environ.get("TITO_FAMILIES", ""))
    if not os.environ.get("TITO_FAMILIES") or not folders(root):
        sys.exit("TITO_FAMILIES must name a folder of model folders, each with a tokenizer.json")
    found = gather(root)
    show(found, Console(width=160))
    return int(any(cell.verdict == "WRONG" for cell in found))


if __name__ == "__main__":
    sys.exit(main())
