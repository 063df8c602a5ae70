"""What a turn costs, beside the floor of comparing messages and copying ids, and beside what others do.

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

from benchmarks import show
from benchmarks.chart import check, draw
from benchmarks.command import interruptible
from benchmarks.copies import Copy, copies
from benchmarks.history import History, histories
from benchmarks.index import PEERS, Asked
from benchmarks.measure import Point, hard, linear
from benchmarks.targets import Target, targets
from benchmarks.voice import voice
from benchmarks.weight import imports, loads_asyncio, stored, tokenized
from tito_io.cli.options import WholeRange

SIZES, TOKENS = (10, 100, 400, 1_000, 3_000), (50, 2_000)
QUICK_SIZES, QUICK_TOKENS = (10, 100), (50, 200)
COPIED = 1_000
"""Turns of the history whose copies are measured: with 2,000 tokens a message four million ids."""
LONG = 1_000_000
"""Ids from which on copies are judged: below, what a stitch does beside copying counts for more."""
HELD = 400
"""Turns of the history whose memory is measured."""
MOST = 1.5
"""How many imports of attrs and cattrs that of the kernel may take, and how many copies a stitch."""


@attrs.define
class Found:
    """Everything that was measured."""

    tokenizer: str
    versions: list[str] = attrs.field(factory=list)
    left_out: list[str] = attrs.field(factory=list)
    points: list[Point] = attrs.field(factory=list)
    copies: list[Copy] = attrs.field(factory=list)
    copied_ids: int = 0
    tokenized: dict[str, float] = attrs.field(factory=dict)
    """Tokens given to the tokenizer, for each new one."""
    stored: dict[str, float] = attrs.field(factory=dict)
    """Bytes a token above the messages."""
    imports: dict[str, float] = attrs.field(factory=dict)
    """Seconds."""
    asyncio: bool = False
    """Whether importing the kernel loads it."""
    targets: list[Target] = attrs.field(factory=list)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Smaller sizes: a minute or so.")
@click.option(
    "--peers", is_flag=True, help="Make environments for packages of the index, under ~/.cache/tito."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write growth curves: .svg or .png."
)
@click.option("--turns", multiple=True, type=WholeRange(2), help="Turns in the history; may be repeated.")
@click.option("--tokens", multiple=True, type=WholeRange(1), help="Tokens a message; may be repeated.")
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
    """Measure what a turn costs, all programs side by side; with TITO_FAMILIES=DIR with a real tokenizer."""
    if plot is not None:
        check(plot)
    progress = Console(stderr=True)
    sizes, widths = turns or (QUICK_SIZES if quick else SIZES), tokens or (QUICK_TOKENS if quick else TOKENS)
    with progress.status("starting") as status:
        found = measured(sorted(set(sizes)), sorted(set(widths)), status.update, install=peers)
    if as_json:
        click.echo(json.dumps(plain(found), indent=1))
    else:
        printed(Console(width=None if sys.stdout.isatty() else 200), found)
    if plot is not None:
        draw(found.points, plot)
        progress.print(f"wrote {plot}")


def measured(sizes: Sequence[int], widths: Sequence[int], say: Any, *, install: bool) -> Found:
    """Measure everything."""
    speaks = voice()
    found = Found(speaks.name)
    with started(found, install=install) as peers:
        for width in widths:
            say(f"making histories of {width:,} tokens a message")
            made = histories(speaks, sizes, width)
            found.points += linear(made, peers, say)
            found.points += hard(made, say) if width == widths[0] else ()
            held = _longest(made, HELD)
            found.stored[f"{width:,} tokens a message, {held.turns:,} turns"] = stored(held)
            longest = _longest(made, COPIED)
    say("copies, memory and imports")
    found.copies, found.copied_ids = copies(longest), longest.last.ids.length
    found.tokenized = tokenized(longest)
    found.imports, found.asyncio = imports(), loads_asyncio()
    found.targets = [*judged(found, widths, cuts=speaks.folder is not None)]
    return found


def _longest(made: Sequence[History], limit: int) -> History:
    """Return the longest history of at most so many turns, or the shortest of all."""
    return max((one for one in made if one.turns <= limit), key=lambda one: one.turns, default=made[0])


@contextmanager
def started(found: Found, *, install: bool) -> Iterator[list[Asked]]:
    """Start the peers whose environments are there, and say which are not."""
    running: list[Asked] = []
    try:
        for peer in PEERS:
            if install and not peer.there:
                peer.install()
            if peer.there:
                running.append(Asked.start(peer))
                found.versions += running[-1].versions
            else:
                found.left_out.append(f"{', '.join(peer.needs)} (--peers makes an environment)")
        yield running
    finally:
        for one in running:
            one.stop()


def judged(found: Found, widths: Sequence[int], *, cuts: bool) -> Iterator[Target]:
    """Yield every target; that of the tokens only where the tokenizer can cut a text."""
    for width in widths:
        yield from targets(found.points, width)
    for one in found.copies[:2] if found.copied_ids >= LONG else ():
        yield Target(f"{one.name}, {found.copied_ids:,} ids: copies", one.ratio, MOST)
    if cuts:
        yield Target("tokens given to the tokenizer for each new one", found.tokenized["tito, profile"], 1.0)
    for name, held in found.stored.items():
        yield Target(f"bytes a token, {name}", held, 16)
    ratio = found.imports["tito_core"] / found.imports["attrs, cattrs"]
    yield Target("importing tito_core: of importing attrs and cattrs", ratio, MOST)
    yield Target("event loops that importing tito_core loads", float(found.asyncio), 0)


def plain(found: Found) -> dict[str, Any]:
    """Return what was found as JSON data; times are seconds."""
    data = attrs.asdict(found, value_serializer=lambda _, __, value: _dict(value))
    met = [{**attrs.asdict(one), "met": one.met} for one in found.targets]
    return {**data, "targets": met}


def _dict(value: Any) -> Any:
    return value._asdict() if hasattr(value, "_asdict") else value


def printed(console: Console, found: Found) -> None:
    """Print everything as tables."""
    console.print(f"tokenizer: {found.tokenizer}; {', '.join(found.versions) or 'no peers of the index'}")
    for one in found.left_out:
        console.print(f"left out: {one}")
    show.tables(console, found.points)
    show.copied(console, found.copies, found.copied_ids)
    show.weighed(console, "tokens given to the tokenizer, for each new one", found.tokenized, ",.2f")
    show.weighed(console, "bytes a token that a trajectory holds, above the messages", found.stored, ".1f")
    show.weighed(console, "seconds of an import, beyond an empty process", found.imports, ".3f")
    show.judged(console, found.targets)


if __name__ == "__main__":
    main()
