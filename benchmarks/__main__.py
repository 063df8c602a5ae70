"""Measure what a stitch costs per turn, next to a floor and next to other programs.

The floor compares the messages once with `==` and copies the ids once.

python -m benchmarks [--quick] [--peers] [--json] [--plot growth.svg]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console

from benchmarks import tables
from benchmarks.chart import check, draw
from benchmarks.command import interruptible
from benchmarks.copies import Copy, copies
from benchmarks.footprint import bytes_a_token, imports, loads_asyncio, tokenized
from benchmarks.history import History, histories
from benchmarks.measure import Point, branching_points, linear_points
from benchmarks.peer_process import PEERS, PeerProcess
from benchmarks.renderer import load_renderer
from benchmarks.targets import Target, targets
from tito_io.cli.options import WholeRange

SIZES, TOKENS = (10, 100, 400, 1_000, 3_000), (50, 2_000)
QUICK_SIZES, QUICK_TOKENS = (10, 100), (50, 200)
COPIED_TURNS = 1_000
"""Turns of the history whose copies are measured. With 2,000 tokens a message it has 4,000,000 ids."""
LONG_IDS = 1_000_000
"""Copies have a target from this many ids on. In shorter histories the fixed work of a stitch dominates."""
STORED_TURNS = 400
"""Turns of the history whose memory is measured."""
MOST_COPIES = 1.5
"""The limit of two ratios: importing the kernel to importing attrs and cattrs, and a stitch to a copy."""


@attrs.define
class Results:
    """All measurements of one run.

    Attributes:
        tokenizer: Name of the tokenizer and template.
        versions: Versions of the peers that were measured.
        left_out: Peers whose environment is missing.
        points: One program at one size each.
        copies: Copies of the longest history's ids.
        copied_ids: Ids of that history.
        tokenized: Tokens given to the tokenizer for each new one, by program.
        bytes_a_token: Bytes a token above the messages, by history.
        imports: Seconds of an import, by name.
        asyncio: Whether importing the kernel loads asyncio.
        targets: Figures with their limits.
    """

    tokenizer: str
    versions: list[str] = attrs.field(factory=list)
    left_out: list[str] = attrs.field(factory=list)
    points: list[Point] = attrs.field(factory=list)
    copies: list[Copy] = attrs.field(factory=list)
    copied_ids: int = 0
    tokenized: dict[str, float] = attrs.field(factory=dict)
    bytes_a_token: dict[str, float] = attrs.field(factory=dict)
    imports: dict[str, float] = attrs.field(factory=dict)
    asyncio: bool = False
    targets: list[Target] = attrs.field(factory=list)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Measure small histories only; takes about a minute.")
@click.option(
    "--peers",
    is_flag=True,
    help="Install the other packages that are measured, each in an environment under ~/.cache/tito.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write growth curves into this .svg or .png file.",
)
@click.option(
    "--turns",
    multiple=True,
    type=WholeRange(2),
    help="Turns in the history; may be repeated. Default: a range of sizes.",
)
@click.option(
    "--tokens",
    multiple=True,
    type=WholeRange(1),
    help="Tokens a message; may be repeated. Default: two sizes.",
)
@interruptible
def main(
    *,
    quick: bool,
    peers: bool,
    as_json: bool,
    plot: Path | None,
    turns: tuple[int, ...],
    tokens: tuple[int, ...],
) -> None:
    """Measure what a stitch costs per turn, and compare programs.

    TITO_FAMILIES=DIR measures with the model folder `qwen3` of DIR instead of a toy tokenizer.
    """
    if plot is not None:
        check(plot)
    progress = Console(stderr=True)
    sizes, widths = turns or (QUICK_SIZES if quick else SIZES), tokens or (QUICK_TOKENS if quick else TOKENS)
    with progress.status("starting") as status:
        results = measure_all(sorted(set(sizes)), sorted(set(widths)), status.update, install=peers)
    if as_json:
        click.echo(json.dumps(json_data(results), indent=1))
    else:
        print_results(Console(width=None if sys.stdout.isatty() else 200), results)
    if plot is not None:
        draw(results.points, plot)
        progress.print(f"wrote {plot}")


def measure_all(sizes: Sequence[int], widths: Sequence[int], report: Any, *, install: bool) -> Results:
    """Measure every size in `sizes` (turns) and `widths` (tokens a message)."""
    renderer = load_renderer()
    results = Results(renderer.name)
    with started_peers(results, install=install) as peers:
        for width in widths:
            report(f"building histories of {width:,} tokens a message")
            short_to_long = histories(renderer, sizes, width)
            results.points += linear_points(short_to_long, peers, report)
            results.points += branching_points(short_to_long, report) if width == widths[0] else ()
            stored_history = _longest(short_to_long, STORED_TURNS)
            results.bytes_a_token[f"{width:,} tokens a message, {stored_history.turns:,} turns"] = (
                bytes_a_token(stored_history)
            )
            longest = _longest(short_to_long, COPIED_TURNS)
    report("copies, memory and imports")
    results.copies, results.copied_ids = copies(longest), longest.last.ids.length
    results.tokenized = tokenized(longest)
    results.imports, results.asyncio = imports(), loads_asyncio()
    results.targets = [*all_targets(results, widths, cuts=renderer.folder is not None)]
    return results


def _longest(short_to_long: Sequence[History], limit: int) -> History:
    """Return the longest history of at most `limit` turns, or the first one if all are longer."""
    return max(
        (one for one in short_to_long if one.turns <= limit),
        key=lambda one: one.turns,
        default=short_to_long[0],
    )


@contextmanager
def started_peers(results: Results, *, install: bool) -> Iterator[list[PeerProcess]]:
    """Start the installed peers, note the others in `results.left_out`, and stop all at the end."""
    running: list[PeerProcess] = []
    try:
        for peer in PEERS:
            if install and not peer.installed:
                peer.install()
            if peer.installed:
                running.append(PeerProcess.start(peer))
                results.versions += running[-1].versions
            else:
                results.left_out.append(f"{', '.join(peer.packages)} (not installed; --peers installs it)")
        yield running
    finally:
        for one in running:
            one.stop()


def all_targets(results: Results, widths: Sequence[int], *, cuts: bool) -> Iterator[Target]:
    """Yield every target. That of the tokens needs a tokenizer that can start in mid-text (`cuts`)."""
    for width in widths:
        yield from targets(results.points, width)
    for one in results.copies[:2] if results.copied_ids >= LONG_IDS else ():
        yield Target(f"{one.name}, {results.copied_ids:,} ids: copies", one.ratio, MOST_COPIES)
    if cuts:
        yield Target(
            "tokens given to the tokenizer for each new one", results.tokenized["tito, profile"], 1.0
        )
    for name, stored_history in results.bytes_a_token.items():
        yield Target(f"bytes a token, {name}", stored_history, 16)
    ratio = results.imports["tito_core"] / results.imports["attrs, cattrs"]
    yield Target("importing tito_core, as a multiple of importing attrs and cattrs", ratio, MOST_COPIES)
    yield Target("importing tito_core loads asyncio (1) or not (0)", float(results.asyncio), 0)


def json_data(results: Results) -> dict[str, Any]:
    """Return the results as JSON data; times are in seconds."""
    data = attrs.asdict(results, value_serializer=lambda _, __, value: _dict(value))
    judged = [{**attrs.asdict(one), "met": one.met} for one in results.targets]
    return {**data, "targets": judged}


def _dict(value: Any) -> Any:
    return value._asdict() if hasattr(value, "_asdict") else value


def print_results(console: Console, results: Results) -> None:
    """Print everything as tables."""
    console.print(f"tokenizer: {results.tokenizer}; {', '.join(results.versions) or 'no other packages'}")
    for one in results.left_out:
        console.print(f"left out: {one}")
    tables.print_points(console, results.points)
    tables.print_copies(console, results.copies, results.copied_ids)
    tables.print_figures(
        console, "tokens given to the tokenizer, for each new one", results.tokenized, ",.2f"
    )
    tables.print_figures(
        console, "bytes a token of a trajectory, beyond its messages", results.bytes_a_token, ".1f"
    )
    tables.print_figures(console, "seconds of an import, beyond an empty process", results.imports, ".3f")
    tables.print_targets(console, results.targets)


if __name__ == "__main__":
    main()
