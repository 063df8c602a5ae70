"""Run agent programs against the gateway and print a table: `python -m tests.agents [AGENT ...]`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import click
from rich.console import Console
from rich.table import Table

from benchmarks.command import interruptible

from .catalogue import AGENTS, PROGRAMS
from .program import Program, environment
from .run import Outcome, run

HEADINGS = (
    *("agent", "API", "requests", "by ids", "by messages", "rows", "other calls", "ids trained"),
    *("tokenize", "first byte"),
)


@attrs.frozen
class Line:
    """A line of the table.

    Attributes:
        name: The agent and its version.
        outcome: What happened; None where it could not be installed.
        error: Why.
    """

    name: str
    outcome: Outcome | None
    error: str = ""

    @property
    def good(self) -> bool:
        """Whether the agent ran to its end and every sampled id trains once."""
        found = self.outcome
        ended = found is not None and found.status == 0 and not found.refused and not found.mislabelled
        return found is not None and ended and found.sampled == found.trained

    def cells(self) -> tuple[str, ...]:
        """Return the cells, in the order of `HEADINGS`."""
        found = self.outcome
        if found is None:
            return (self.name, self.error, *[""] * (len(HEADINGS) - 2))
        talking = [turn for turn in found.turns if turn.talks]
        by_messages = sum(turn.route != "TITO" for turn in talking)
        reasons = ", ".join(f"{count} {why}" for why, count in Counter(found.by_messages).items())
        apis = ", ".join(sorted({turn.dialect for turn in found.turns})) or f"exit status {found.status}"
        refused = f" ({len(found.refused)} refused)" if found.refused else ""
        requests = f"{len(found.exchanges)}{refused}"
        sampled, trained = (sum(map(len, one.elements())) for one in (found.sampled, found.trained))
        return (
            *(self.name, apis, requests, str(found.extending)),
            f"{by_messages}{f' ({reasons})' if reasons else ''}",
            *(str(found.rows), str(found.beside or ""), f"{trained} of {sampled}"),
            *(str(len(found.renders)), f"{found.first_byte:.1f} s"),
        )


def measured(program: Program, console: Console) -> Line:
    """Install a program where it is missing, and run it."""
    where = environment(program.agent)
    name = f"{program.name} {where.pins()[program.package]}"
    try:
        where.ready(console.print)
    except RuntimeError as error:
        return Line(name, None, str(error).strip().rpartition("\n")[2])
    with TemporaryDirectory(prefix="tito-agent-") as folder:
        found = run(program, where.folder, Path(folder))
    console.print(found.report() if found.refused else found.line(), markup=False, highlight=False)
    return Line(name, found)


def markdown(lines: Sequence[Line]) -> str:
    """Return the lines as a Markdown table."""
    table = (HEADINGS, ("---",) * len(HEADINGS), *(line.cells() for line in lines))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in table)


def shown(lines: Sequence[Line]) -> Table:
    """Return the lines as a table for a terminal."""
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading)
    for line in lines:
        table.add_row(*line.cells(), style=None if line.good else "red")
    return table


def chosen(agents: Sequence[str]) -> Iterator[Program]:
    """Yield the programs of agents; all without any."""
    yield from (program for program in PROGRAMS if not agents or program.agent in agents)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("agents", nargs=-1, type=click.Choice(AGENTS), metavar="[AGENT]...")
@click.option("--markdown", "file", type=click.Path(path_type=Path), help="Write the table as Markdown.")
@interruptible
def main(*, agents: tuple[str, ...], file: Path | None) -> None:
    """Run agents, or all of them, against `tito serve` on a scripted engine.

    Each is installed at its first run. Exits with 1 if one did not run to its end, or an id does not train
    exactly once.
    """
    console = Console(stderr=True)
    lines = [measured(program, console) for program in chosen(agents)]
    Console(width=150).print(shown(lines))
    if file is not None:
        file.write_text(markdown(lines), encoding="utf-8")
    sys.exit(not all(line.good for line in lines))


if __name__ == "__main__":
    main()
