"""Print the table of templates and shapes:  TITO_FAMILIES=DIR python -m tests.families.table."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.families.bridged import EXACT, REFUSED, WRONG
from tests.families.cells import RENDERINGS, SHAPES, UNRENDERABLE, Cell, Judge, Subject, strangers, subjects

LETTER = {EXACT: "=", REFUSED: "r", WRONG: "X", UNRENDERABLE: "."}


def folders(root: Path) -> list[Path]:
    """Return the model folders, those that have a vocabulary."""
    return sorted(path.parent for path in root.glob("*/tokenizer.json"))


Loader = Callable[[], Iterator[Subject]]
"""Loads the templates of a folder."""


def sources(root: Path) -> list[tuple[str, Loader]]:
    """Return every folder's name, and what loads its templates; those without a vocabulary last.

    `TITO_TEMPLATES` has more folders of those.
    """
    known = [(folder.name, partial(subjects, folder)) for folder in folders(root)]
    named = filter(None, os.environ.get("TITO_TEMPLATES", "").split(os.pathsep))
    more = [folder for folder in (root / "extra_templates", *map(Path, named)) if folder.exists()]
    return [*known, *((folder.name, partial(strangers, folder, root)) for folder in more)]


def everything(root: Path) -> list[Subject]:
    """Return every template."""
    return [subject for _, load in sources(root) for subject in load()]


def gather(root: Path) -> tuple[list[Cell], list[int]]:
    """Judge every cell, showing progress; return the cells, and how many renders each profile took."""
    found: list[Cell] = []
    probed: list[int] = []
    for subject in track(everything(root), "templates", console=Console(stderr=True)):
        for rendering in RENDERINGS:
            judge = Judge.of(subject, rendering)
            found += judge.cells()
            probed.append(judge.probed)
    return found, probed


def show(found: list[Cell], console: Console) -> None:
    """Print a row a template and rendering, and why cells are refused."""
    table = Table(title="= exact   r refused   . the template cannot render it   X wrong")
    table.add_column("template")
    table.add_column("rendering")
    for number in range(1, len(SHAPES) + 1):
        table.add_column(str(number))
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in found:
        rows.setdefault((f"{cell.family}/{cell.template}", cell.rendering), []).append(LETTER[cell.verdict])
    for names, letters in rows.items():
        table.add_row(*names, *letters)
    console.print(table)
    for number, shape in enumerate(SHAPES, 1):
        console.print(f"{number:3} {shape}")
    why = Counter((cell.family, cell.template, cell.reason) for cell in found if cell.reason)
    for (family, template, reason), count in why.most_common():
        console.print(f"{count:3} {family}/{template}: {reason}", markup=False)


def sums(found: list[Cell], probed: list[int], seconds: float, console: Console) -> None:
    """Print how many cells are what, by each of three ways."""
    for way in ("verdict", "bare", "subtraction"):
        counts = Counter(getattr(cell, way) for cell in found)
        label = {"verdict": "with a profile", "bare": "without", "subtraction": "difference of two renders"}[
            way
        ]
        console.print(f"{label:26} " + ", ".join(f"{counts[name]} {name}" for name in LETTER))
    exact = [cell for cell in found if cell.verdict == EXACT]
    renders = Counter(cell.renders for cell in exact)
    console.print(f"renders of a stitch with a profile: {dict(sorted(renders.items()))}")
    bare = sorted(cell.bare_renders for cell in found if cell.bare == EXACT)
    console.print(f"without: median {bare[len(bare) // 2]}, most {bare[-1]}")
    console.print(
        f"a profile of these cases: median {sorted(probed)[len(probed) // 2]} renders, most {max(probed)}"
    )
    console.print(f"{seconds:.0f} s in all")


def main() -> int:
    """Print the table; 1 where a cell is wrong."""
    argparse.ArgumentParser(
        prog="python -m tests.families.table",
        description="Print the table of templates and shapes. TITO_FAMILIES names a folder of model folders, "
        "each with a tokenizer.json, and maybe extra_templates. Ends with 1 where a cell is wrong.",
    ).parse_args()
    root = Path(os.environ.get("TITO_FAMILIES", ""))
    if not os.environ.get("TITO_FAMILIES") or not folders(root):
        sys.exit("TITO_FAMILIES must name a folder of model folders, each with a tokenizer.json")
    began = time.monotonic()
    found, probed = gather(root)
    console = Console(width=160)
    show(found, console)
    sums(found, probed, time.monotonic() - began, console)
    return int(any(WRONG in (cell.verdict, cell.bare) for cell in found))


if __name__ == "__main__":
    sys.exit(main())
