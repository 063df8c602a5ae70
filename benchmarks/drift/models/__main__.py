"""Run conversations with a real model, and write the page about their drift.

`python -m benchmarks.drift.models --folder DIR --gguf FILE_OR_PACKAGE` runs what is missing. With `--page
DOCS` all models of the folder are counted, and the page, its pictures and its data are written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn, track

from benchmarks.command import interruptible
from tito_core import InputError, Message, TemplateRefused, TitoError
from tito_io.atomic_write import write_atomically
from tito_io.cli.options import WholeRange, load_family
from tito_io.client import TokenClient, rendered_by
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.families.family import Family
from tito_io.families.gguf.installed import gguf_file
from tito_io.llamacpp_server.command import local_engine
from tito_io.llamacpp_server.settings import ServerSettings

from .counts import Counts, from_csv
from .design import Plan, plans
from .folder import SETTINGS, ModelFolder, RunSettings
from .measure import Measurement, measured, stored
from .other_families import measured_as, other_families
from .page import DATA, written
from .sampler import ConversationSampler, WithoutLogprobs
from .scripts import most_conversations

CONVERSATIONS, TURNS, TOGETHER = 200, 12, 8
CONTEXT = 4096
"""Ids that a conversation may have."""
AVERAGED = 3600.0
"""Seconds of the latest conversations that the estimate is made from."""
LINES = 20
"""Conversations after which a run without a terminal prints a line."""
CALL = {"id": "call-1", "type": "function", "function": {"name": "search", "arguments": {"query": "rain"}}}
TOOL_TURN: tuple[Message, ...] = (
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call-1", "name": "search", "content": "ok"},
    {"role": "user", "content": "Go on."},
)
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--folder", type=FOLDER, help="Where conversations are stored, by model.")
@click.option(
    "--gguf", metavar="FILE", help="GGUF file, or installed package that ships one: run what it lacks."
)
@click.option(
    "--family",
    type=click.Path(exists=True, path_type=Path),
    help="Model folder to render with. Default: the GGUF file.",
)
@click.option(
    "--conversations",
    type=WholeRange(1),
    default=CONVERSATIONS,
    show_default=True,
    help=f"Conversations for each temperature and language, at most {most_conversations()}.",
)
@click.option("--turns", type=WholeRange(2), default=TURNS, show_default=True, help="Turns of each.")
@click.option(
    "--together", type=WholeRange(1), default=TOGETHER, show_default=True, help="Conversations at a time."
)
@click.option("--threads", type=WholeRange(1), default=1, show_default=True, help="Threads that compute.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of scripts and sampling.")
@click.option(
    "--families",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of model folders: count the same text in their templates, too.",
)
@click.option(
    "--page",
    type=FOLDER,
    help="Write the page, two pictures and the data into this folder. Without --folder they are written "
    "again from the data that are there.",
)
@interruptible
def main(
    *, folder: Path | None, gguf: str | None, families: Path | None, page: Path | None, **given: Any
) -> None:
    """Measure how often the history of real models' conversations drifts.

    A finished conversation is a file of the folder. A run that is started again goes on with those that are
    missing.

    Exits with 1 if a conversation failed or cannot be counted, and with 2 for bad input.
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if gguf is None and page is None:
        raise click.UsageError(
            "give --gguf FILE to run conversations, --page DOCS to write the page, or both"
        )
    for name, value, needed in (
        ("gguf", gguf, "folder"),
        ("families", families, "folder"),
        ("families", families, "page"),
    ):
        if value is not None and {"folder": folder, "page": page}[needed] is None:
            raise click.UsageError(f"--{name} needs --{needed}")
    if given["conversations"] > most_conversations():
        raise click.UsageError(f"--conversations: only {most_conversations()} begin unlike each other")
    try:
        failed = run(folder, page, gguf, families, given, console)
    except TitoError as error:
        raise click.UsageError(str(error)) from None
    for one in failed:
        console.print(one, markup=False)
    sys.exit(1 if failed else 0)


def run(
    folder: Path | None,
    page: Path | None,
    gguf: str | None,
    families: Path | None,
    given: dict[str, Any],
    console: Console,
) -> list[str]:
    """Do what the options say; return the conversations that failed."""
    failed: list[str] = []
    if folder is not None and gguf is not None:
        failed += sampled(folder, gguf, given, console)
    if page is not None:
        into = (
            Measurement(from_csv(page / DATA)) if folder is None else measured_all(folder, families, console)
        )
        write_page(into.counts, page)
        failed += into.problems
    return failed


def sampled(folder: Path, gguf: str, given: dict[str, Any], console: Console) -> list[str]:
    """Run the conversations that are missing; return those that failed."""
    file = gguf_file(gguf)
    loaded = load_family(given["family"] or file, fast=False, check_every=0)
    settings = RunSettings(
        model=file.stem,
        gguf=str(file.resolve()),
        family=str(given["family"].resolve()) if given["family"] else "",
        turns=given["turns"],
        seed=given["seed"],
        tools=takes_tools(loaded),
    )
    if not settings.tools:
        console.print(f"{settings.model}: its template takes no tool result, so that no tools are offered")
    model = ModelFolder.begun(folder / settings.model, settings)
    missing = model.missing(plans(given["conversations"], tools=settings.tools))
    if not missing:
        return []
    server = ServerSettings(file=file, context=CONTEXT, slots=given["together"], threads=given["threads"])
    with local_engine(server, family=given["family"], fast=False, check_every=0) as named:
        return anyio.run(_sampled, named, model, missing, given["together"], console)


def takes_tools(family: Family) -> bool:
    """Return whether a template renders a turn with a call and its result."""
    try:
        family.tokenize_fn()(TOOL_TURN, add_generation_prompt=True)
    except TemplateRefused:
        return False
    return True


async def _sampled(
    named: dict[str, Any], model: ModelFolder, missing: list[Plan], together: int, console: Console
) -> list[str]:
    engine = LlamaCpp(
        named["base_url"], api_key=named["api_key"], family=named["loaded"], transport=WithoutLogprobs()
    )
    async with aclosing(engine):
        client = TokenClient(engine, renderer=rendered_by(named["loaded"]))
        with shown(model.settings.model, len(missing), console) as state:
            sampler = ConversationSampler(client, model, state.on_turn, state.on_end)
            await sampler.run(missing, together)
    return sampler.failed


@attrs.define
class RunState:
    """How far a run is, as a bar on a terminal and else as lines.

    Attributes:
        progress: The bar.
        ids: Ids that were sampled.
    """

    progress: Progress
    ids: int = 0

    def on_turn(self, ids: int) -> None:
        """Count the sampled ids of a turn."""
        self.ids += ids

    def on_end(self) -> None:
        """Count a conversation."""
        task = self.progress.tasks[0]
        self.progress.update(task.id, advance=1, speed=f"{self.ids / max(task.elapsed or 0, 1):.0f} ids/s")
        if not self.progress.console.is_terminal and task.completed % LINES == 0:
            left, speed = (task.time_remaining or 0) / 3600, task.fields["speed"]
            self.progress.console.print(
                f"{task.completed:.0f} of {task.total:.0f} conversations, {speed}, {left:.1f} h left"
            )


@contextmanager
def shown(name: str, conversations: int, console: Console) -> Iterator[RunState]:
    """Show the progress of a run, with an estimate."""
    columns = (
        *(TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}")),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, disable=not console.is_terminal, speed_estimate_period=AVERAGED
    ) as progress:
        progress.add_task(name, total=conversations, speed="")
        yield RunState(progress)


def measured_all(folder: Path, families: Path | None, console: Console) -> Measurement:
    """Count the conversations of all models of a folder, and their text in other families."""
    into = Measurement()
    models = [ModelFolder.opened(path.parent) for path in sorted(folder.glob(f"*/{SETTINGS}"))]
    if not any(model.finished() for model in models):
        raise InputError(f"{folder}: has no finished conversations: run some with --gguf")
    for model in models:
        measured(model, track(list(stored(model)), model.settings.model, console=console), into)
    for family in () if families is None else other_families(families):
        for model in models:
            measured_as(family, stored(model), model.settings.model, into)
    return into


def write_page(counts: Counts, page: Path) -> None:
    """Write the page, its pictures and its data into a folder."""
    page.mkdir(parents=True, exist_ok=True)
    for name, text in written(counts).items():
        write_atomically(page / name, text)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.drift.models")
