"""Ask peers for the answers to the conformance vectors: `python -m benchmarks.conformance`.

Each peer runs unmodified in an environment of its own, which is installed at the first run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.command import interruptible
from benchmarks.conformance.page import Result, markdown
from tests.environment import Environment, cache, run
from tito_io.conform.judge import Verdict
from tito_io.conform.report import to_html
from tito_io.conform.run import report_on, selected
from tito_io.conform.vector import ConformError, Vector

ROOT = Path(__file__).parent.parent.parent
PEERS = sorted(file.stem for file in (Path(__file__).parent / "peers").glob("[a-z]*.py"))
SHARED = {"verifiers": "renderers"}
"""Peers that live in another peer's environment."""
VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
SECONDS = 120.0


def environment(peer: str) -> Environment:
    """Return the environment of a peer: one of its own, or that of the integration tests."""
    name = SHARED.get(peer, peer)
    pins = Path(__file__).parent / "pins" / f"{name}.txt"
    if not pins.exists():
        pins = ROOT / "tests" / "frameworks" / name / "requirements.txt"
    return Environment(cache() / f"venv-{name}", pins)


def fact(peer: str, name: str) -> str:
    """Return a constant of a peer's adapter without importing it, since that imports the peer."""
    source = (Path(__file__).parent / "peers" / f"{peer}.py").read_text(encoding="utf-8")
    line = next(line for line in source.splitlines() if line.startswith("PACKAGE, OPERATION = "))
    package, operation = (one.strip(' "') for one in line.partition(" = ")[2].split(", ", 1))
    return {"PACKAGE": package, "OPERATION": operation}[name]


def run_peer(peer: str, vectors: Sequence[Vector], console: Console) -> Result:
    """Return the verdicts on a peer."""
    place = environment(peer)
    place.ready(console.print)
    package = fact(peer, "PACKAGE")
    settings = [f"PYTHONPATH={ROOT}", "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false"]
    command = ["env", *settings, str(place.python), "-m", "benchmarks.conformance.serve", peer]
    name = f"{package} {run(str(place.python), '-c', VERSION, package).strip()}"
    return Result(name, fact(peer, "OPERATION"), report_on(command, name, vectors, SECONDS))


def own(vectors: Sequence[Vector]) -> Result:
    """Return the verdicts on tito's reference."""
    name = f"tito-kernel {version('tito-kernel')}"
    command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tito_io.conform.reference"]
    return Result(name, "`try_stitch` with a profile", report_on(command, name, vectors, SECONDS))


def table(results: Sequence[Result]) -> Table:
    """Return the verdicts, a line for each program."""
    shown = Table(title="Conformance vectors", title_justify="left")
    shown.add_column("program", no_wrap=True)
    for verdict in Verdict:
        shown.add_column(verdict.value, justify="right")
    for one in results:
        shown.add_row(one.name, *(str(one.report.count(verdict) or "") for verdict in Verdict))
    return shown


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--peer",
    "peers",
    multiple=True,
    type=click.Choice(PEERS),
    default=PEERS,
    help="A peer to ask; may be repeated. Default: all.",
)
@click.option("--only", default="", help="Ask only vectors whose id has this text. Default: all.")
@click.option("--markdown", "file", type=click.Path(path_type=Path), help="Write the results as a page.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report on each peer into this folder.")
@interruptible
def main(*, peers: tuple[str, ...], only: str, file: Path | None, html: Path | None) -> None:
    """Ask peers and tito's reference for the answers to the conformance vectors."""
    os.environ.pop("PYTHONPATH", None)
    console = Console(stderr=True)
    try:
        vectors = selected(None, only)
    except ConformError as error:
        raise click.UsageError(str(error)) from None
    results = [own(vectors)]
    for peer in peers:
        console.print(f"asking {peer}")
        results.append(run_peer(peer, vectors, console))
    Console(width=None if sys.stdout.isatty() else 130).print(table(results))
    if file is not None:
        file.write_text(markdown(results, datetime.now(UTC).date()), encoding="utf-8")
    if html is not None:
        html.mkdir(parents=True, exist_ok=True)
        for one in results:
            page = html / f"{one.name.replace(' ', '-')}.html"
            page.write_text(to_html(one.report), encoding="utf-8")


if __name__ == "__main__":
    main()
