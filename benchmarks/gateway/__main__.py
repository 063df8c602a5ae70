"""Measure what the gateway costs, beside a proxy that passes bytes on: `python -m benchmarks.gateway`.

The engine, the proxy and the gateway are processes of their own. The engine answers at once. The proxy is
written with the same HTTP libraries as the gateway; it reads and keeps nothing, so it is the floor.

1. One conversation grows to 207,000 ids: processor time of the gateway and of the proxy for each turn.
   `added` is the difference. Then a shorter one is streamed, an id at a time.
2. The samples and the records of that conversation: size, processor time and memory.
3. Many sessions at once, half of them streamed: twice through the gateway, to see whether it keeps memory of
   sessions that are gone. Every id that comes back is checked, and at the end what a trainer would get. Exits
   with 1 if an id differs, or a turn is lost.

What is known of Miles' session server is printed beside it. It was measured once, on two busy cores, in its
own process and without HTTP.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import attrs
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.command import interruptible, whole
from benchmarks.gateway.agents import Agent, load
from benchmarks.gateway.picture import check, draw
from benchmarks.gateway.processes import ServerProcess, Servers, servers
from benchmarks.gateway.turns import SAMPLED, Collected, Conversation, Cost, collect, converse, median

MILES = {"first turns": 1.3, "last turns": 41.0, "memory MB": 648, "samples s": 41, "records s": 10}
"""Of one session of 400 turns and 207,000 ids: ms a turn of the first and the last ten, and the rest."""
LOADED = 24
"""Sampled ids of a turn in the third part, where there are many turns."""
PAUSE = 0.001
"""Seconds between the ids of a streamed turn."""
SAMPLE = 50
"""After how many turns it is looked how many files are open."""
SHORTER = 5
"""How many times as many turns come whole as streamed."""
LOADS: Mapping[str, Callable[[Load], float]] = {
    "turns a second": lambda load: load.turns / load.seconds,
    "CPU of a turn, ms": lambda load: load.cpu,
    "p50 of a first turn, ms": lambda load: load.first.p50,
    "p99 of a first turn, ms": lambda load: load.first.p99,
    "p50 of a later turn, ms": lambda load: load.later.p50,
    "p99 of a later turn, ms": lambda load: load.later.p99,
    "memory at most, beyond before, MB": lambda load: load.memory / 1e6,
    "memory at the end, MB": lambda load: load.resident / 1e6,
    "open files at most": lambda load: load.files,
    "requests that were sent again": lambda load: load.repeats,
    "errors and wrong ids": lambda load: load.wrong,
}
VALUES: Mapping[str, Callable[[Cost], float]] = {
    "gateway": lambda cost: cost.gateway,
    "proxy": lambda cost: cost.proxy,
    "added": lambda cost: cost.added,
    "of it JSON": lambda cost: cost.parsing,
    "wall": lambda cost: cost.gateway_wall,
    "proxy wall": lambda cost: cost.proxy_wall,
    "engine wall": lambda cost: cost.engine_wall,
}


@attrs.frozen
class Wait:
    """How long turns took, in milliseconds.

    Attributes:
        p50: Half of them took less.
        p99: All but one in a hundred took less.
    """

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Wait:
        """Return it of turns, of which there is at least one."""
        found = sorted(seconds)
        return cls(found[len(found) // 2] * 1e3, found[len(found) * 99 // 100] * 1e3)


@attrs.frozen
class Load:
    """What came of many sessions at once.

    Attributes:
        name: What they went through.
        sessions: How many there were.
        turns: How many turns were answered.
        seconds: How long it took.
        cpu: Processor milliseconds of the server for each turn.
        first: How long the first turn of each session took.
        later: How long the others took.
        memory: By how many bytes the server grew at most.
        resident: The bytes of memory that it has once all sessions are deleted.
        files: The most files that it had open.
        repeats: How many requests were sent again because the engine was not reached.
        wrong: Errors, and comparisons of ids that failed.
    """

    name: str
    sessions: int
    turns: int
    seconds: float
    cpu: float
    first: Wait
    later: Wait
    memory: int
    resident: int
    files: int
    repeats: int
    wrong: int


def loaded(server: ServerProcess, name: str, sessions: int, turns: int, progress: Progress) -> Load:
    """Run agents at once through a server."""
    task = progress.add_task(f"{sessions} sessions, {name}", total=sessions * turns)
    cpu, memory, start = server.cpu_seconds(), server.memory(), time.perf_counter()
    files, counted = [server.files()], count(1)

    def done() -> None:
        progress.advance(task)
        if next(counted) % SAMPLE == 0:
            files.append(server.files())

    async def run() -> list[Agent]:
        return await load(server.url, sessions, turns, session=name == "gateway", done=done)

    agents = anyio.run(run)
    seconds = [one for agent in agents for one in agent.seconds]
    errors = [error for agent in agents for error in agent.errors]
    for error in errors[:5]:
        progress.console.print(error)
    return Load(
        name=name,
        sessions=sessions,
        turns=len(seconds),
        seconds=time.perf_counter() - start,
        cpu=(server.cpu_seconds() - cpu) / max(len(seconds), 1) * 1e3,
        first=Wait.of(one for agent in agents for one in agent.seconds[:1]),
        later=Wait.of([one for agent in agents for one in agent.seconds[1:]] or seconds),
        memory=server.memory("VmHWM") - memory,
        resident=server.memory(),
        files=max(files),
        repeats=sum(agent.repeats for agent in agents),
        wrong=len(errors) + sum(agent.mismatches for agent in agents) + (len(seconds) != sessions * turns),
    )


@attrs.frozen
class Results:
    """All that was measured."""

    conversations: Sequence[Conversation]
    collected: Sequence[Collected]
    loads: Sequence[Load]


def measured(given: argparse.Namespace, folder: Path, progress: Progress) -> Results:
    """Measure everything."""

    def new_store(name: str) -> str:
        return given.store or f"sqlite:{folder / name}"

    def conversation(started: Servers, turns: int, *, stream: bool) -> Conversation:
        task = progress.add_task("a conversation, streamed" if stream else "a conversation", total=turns)
        return converse(started, turns, stream=stream, done=partial(progress.advance, task))

    with servers(folder, new_store("whole.db"), SAMPLED) as started:
        whole_one = conversation(started, given.turns, stream=False)
        collected = collect(started, whole_one.name)
    with servers(folder, new_store("streamed.db"), SAMPLED, PAUSE) as started:
        streamed = conversation(started, max(given.turns // SHORTER, 1), stream=True)
    with servers(folder, new_store("many.db"), LOADED) as started:
        loads = [
            loaded(server, name, given.sessions, given.session_turns, progress)
            for name, server in (
                ("proxy", started.proxy),
                ("gateway", started.gateway),
                ("gateway", started.gateway),
            )
        ]
    return Results((whole_one, streamed), collected, loads)


def print_conversation(console: Console, found: Conversation) -> None:
    """Print a table of a conversation's turns."""
    kind = "streamed" if found.stream else "whole"
    title = f"A conversation of {len(found.costs)} turns, {kind}: ms of processor time a turn, medians"
    table = Table(title=title)
    columns = ("from turn", *VALUES, "ratio")
    for name in columns:
        table.add_column(name, justify="right")
    for first, costs in found.parts():
        numbers = {name: median(costs, value) for name, value in VALUES.items()}
        ratio = numbers["gateway"] / numbers["proxy"]
        table.add_row(str(first), *(f"{number:.2f}" for number in (*numbers.values(), ratio)))
    console.print(table)


def print_collected(console: Console, results: Results) -> None:
    """Print what a whole session takes, beside Miles' server."""
    whole_one = results.conversations[0]
    table = Table(title=f"A session of {len(whole_one.costs)} turns, about {whole_one.ids:,} ids")
    for name in ("", "gateway", "Miles' server"):
        table.add_column(name, justify="left" if not name else "right")
    parts = [median(costs, lambda cost: cost.gateway) for _, costs in whole_one.parts()]
    table.add_row("CPU of the first turns, ms", f"{parts[0]:.1f}", f"{MILES['first turns']}")
    table.add_row("CPU of the last turns, ms", f"{parts[-1]:.1f}", f"{MILES['last turns']}")
    table.add_row("memory, MB", f"{whole_one.memory / 1e6:.0f}", f"{MILES['memory MB']}")
    for one in results.collected:
        size = f"{one.what}, {one.bytes / 1e6:.0f} MB: CPU, s"
        table.add_row(size, f"{one.seconds:.1f}", f"{MILES[f'{one.what} s']}")
        table.add_row(f"{one.what}: memory at most, MB", f"{one.memory / 1e6:.0f}", "")
    console.print(table)


def print_loads(console: Console, loads: Sequence[Load]) -> None:
    """Print what came of many sessions at once."""
    proxy, first, second = loads
    table = Table(title=f"{proxy.sessions} sessions at once, {first.turns} turns, half streamed")
    for name in ("", "gateway", "the same again", "proxy", "ratio"):
        table.add_column(name, justify="left" if not name else "right")
    for label, value in LOADS.items():
        found = [value(one) for one in (first, second, proxy)]
        ratio = f"{found[0] / found[2]:.2f}" if found[2] else ""
        table.add_row(label, *(f"{one:.1f}" for one in found), ratio)
    console.print(table)


def arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gateway",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--turns", type=whole(1), default=400, help="Turns of the conversation. Default: %(default)s."
    )
    parser.add_argument(
        "--sessions", type=whole(1), default=500, help="Sessions at once. Default: %(default)s."
    )
    parser.add_argument(
        "--session-turns", type=whole(1), default=20, help="Turns of each of them. Default: %(default)s."
    )
    parser.add_argument(
        "--store", help="Session store: memory, sqlite:PATH or redis://... Default: new files."
    )
    parser.add_argument(
        "--plot", type=Path, help="Write the curves of the conversations to this SVG or PNG file."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON, all turns included.")
    return parser.parse_args()


@interruptible
def main() -> int:
    """Measure, and print or draw what was found; return the exit status."""
    given = arguments()
    if given.plot is not None:
        check(given.plot)
    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, disable=not console.is_terminal)
    with TemporaryDirectory() as folder, bar as progress:
        results = measured(given, Path(folder), progress)
    if given.json:
        print(json.dumps(attrs.asdict(results)))
    else:
        print_tables(results)
    if given.plot is not None:
        draw(results.conversations, given.plot)
    return int(any(one.wrong for one in results.loads))


def print_tables(results: Results) -> None:
    """Print all tables."""
    console = Console()
    for found in results.conversations:
        print_conversation(console, found)
    print_collected(console, results)
    print_loads(console, results.loads)


if __name__ == "__main__":
    sys.exit(main())
