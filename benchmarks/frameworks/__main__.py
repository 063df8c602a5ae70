"""Compare how frameworks keep token ids with tito: `TITO_FAMILIES=DIR python -m benchmarks.frameworks`.

Each framework runs in an environment of its own, which is installed at the first run. Both ways continue the
same sampled turns of real model families. An answer is right if it keeps what was sampled, followed by what
the chat template writes in a render of the whole conversation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.command import interruptible
from benchmarks.frameworks.answers import DIFFERENT, RAISES, REFUSED, VERDICTS, Answer, Row, rows
from benchmarks.frameworks.page import markdown, page, picture
from tests.environment import Environment, cache, run
from tito_io.atomic_write import write_atomically

ROOT = Path(__file__).parent.parent.parent
PEERS = sorted(file.stem for file in (Path(__file__).parent / "peers").glob("[a-z]*.py"))
PACKAGES = {"miles": "miles-tito-tokenizers", "tinker": "tinker-cookbook"}
VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"


def environment(framework: str, console: Console) -> Environment:
    """Return the environment of a framework, installed if it is missing."""
    pins = ROOT / "tests" / "frameworks" / framework / "requirements.txt"
    found = Environment(cache() / f"venv-{framework}", pins)
    found.ready(console.print)
    return found


def measured(python: Path, framework: str, families: Sequence[str]) -> Iterator[Answer]:
    """Yield the answers of a framework, as its process prints them."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [str(python), "-m", "benchmarks.frameworks.measure", framework, *families]
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # this project's own module
        assert process.stdout is not None  # noqa: S101  # for the type: it is a pipe
        yield from map(Answer.read, process.stdout)
    if process.returncode:
        raise click.ClickException(f"{framework}: the process ended with {process.returncode}; see above")


def gathered(
    frameworks: Sequence[str], families: Sequence[str], console: Console
) -> tuple[list[Answer], dict[str, str]]:
    """Return all answers, and the versions of the frameworks, showing progress."""
    found: list[Answer] = []
    versions = {}
    with Progress(console=console) as progress:
        task = progress.add_task("families", total=len(frameworks) * len(families))
        for framework in frameworks:
            python = environment(framework, console).python
            versions[framework] = run(str(python), "-c", VERSION, PACKAGES.get(framework, framework)).strip()
            seen: set[str] = set()
            for answer in measured(python, framework, families):
                found.append(answer)
                if answer.family not in seen:
                    seen.add(answer.family)
                    progress.advance(task)
    return found, versions


def table(found: Sequence[Row]) -> Table:
    """Return the rows as a table."""
    shown = Table(title="Next prompts, against a render of the whole conversation", title_justify="left")
    for heading in ("framework", "way", "turns"):
        shown.add_column(heading, no_wrap=True)
    for heading in (*VERDICTS, "renders", "ms"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row, after in zip(found, [*found[1:], None], strict=True):
        counts = [str(row.counts[verdict] or "") for verdict in VERDICTS]
        last = after is None or after.framework != row.framework
        shown.add_row(
            *(row.framework, row.way, row.ending, *counts, f"{row.renders:.0f}", f"{row.milliseconds:.1f}"),
            end_section=last,
        )
    return shown


def causes(found: Sequence[Answer]) -> Iterator[str]:
    """Yield why answers are not equal, the most frequent cause of each way first."""
    families: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        if one.verdict in (DIFFERENT, RAISES, REFUSED):
            case = (one.framework, one.way, one.ending, one.verdict, one.cause)
            families.setdefault(case, []).append(one.family)
    for key, where in sorted(families.items(), key=lambda pair: (pair[0][:3], -len(pair[1]))):
        known = {one.family for one in found if one.framework == key[0]}
        names = "all families" if set(where) == known else ", ".join(sorted(set(where)))
        yield f"{len(where):4}  {', '.join(key[:3])}: {key[3]}: {key[4]}  ({names})"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--framework",
    "frameworks",
    multiple=True,
    type=click.Choice(PEERS),
    default=PEERS,
    help="A framework to compare; may be repeated. Default: all.",
)
@click.option("--family", "families", multiple=True, help="A model folder by name; may be repeated.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the table as a page to this file, too.")
@click.option(
    "--markdown",
    "table_file",
    type=click.Path(path_type=Path),
    help="Write the table and the causes as Markdown.",
)
@click.option("--svg", type=click.Path(path_type=Path), help="Write it as a picture.")
@interruptible
def main(
    *,
    frameworks: tuple[str, ...],
    families: tuple[str, ...],
    html: Path | None,
    table_file: Path | None,
    svg: Path | None,
) -> None:
    """Compare how frameworks keep token ids with tito's integrations into them."""
    root = Path(os.environ.get("TITO_FAMILIES", ""))
    known = sorted(file.parent.name for file in root.glob("*/tokenizer.json"))
    if not os.environ.get("TITO_FAMILIES") or not known:
        sys.exit("TITO_FAMILIES must name a folder of model folders, each with a tokenizer.json")
    unknown = sorted(set(families) - set(known))
    if unknown:
        raise click.BadParameter(f"{unknown[0]} is no folder in {root}", param_hint="--family")
    found, versions = gathered(frameworks, families or known, Console(stderr=True))
    console = Console(width=130)
    summary = rows(found, versions)
    console.print(table(summary))
    for line in causes(found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if html is not None:
        write_atomically(html, page(summary, list(causes(found)), datetime.now(UTC).date()))
    if table_file is not None:
        write_atomically(table_file, markdown(summary, list(causes(found))))
    if svg is not None:
        write_atomically(svg, picture(summary))


if __name__ == "__main__":
    main()
