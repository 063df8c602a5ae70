"""What the rows of one long session cost, in time and memory:  python -m benchmarks.rows."""

from __future__ import annotations

import gc
import io
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tito_core import Step, Trajectory
from tito_core.samples import Forest, RowPer, SampleOptions, StoredCall, make_rows
from tito_io.samples.entry import entries
from tito_io.samples.forms.tito import write_calls
from tito_io.samples.read import StoredConversation, conversations
from tito_io.samples.sink import KINDS, open_sink

TURNS, SAMPLED, BRIDGE = 400, 300, 217
SECONDS, BYTES = 0.1, 64
"""What rows may take: for all of a session, and for each of its tokens."""
REPEATS = 5
LINES = 11


def session() -> list[Step]:
    """Return the steps of a session, as lists that share nothing."""
    dice = random.Random(7)  # noqa: S311  # numbers to be measured with, not secrets
    steps, ids, messages = list[Step](), list[int](), list[dict[str, Any]]()
    for turn in range(TURNS):
        new = [dice.randrange(150_000) for _ in range(BRIDGE)]
        sampled = [dice.randrange(150_000) for _ in range(SAMPLED)]
        asked = {"role": "tool" if turn else "user", "content": f"{turn} " + "x" * 400}
        said = {"role": "assistant", "content": f"answer {turn} " + "y" * 400}
        messages, ids = [*messages, asked], [*ids, *new]
        logprobs = [-dice.random() for _ in sampled]
        steps.append(
            Step(
                prompt=messages,
                completion=[said],
                prompt_ids=ids,
                completion_ids=sampled,
                logprobs=logprobs,
            )
        )
        messages, ids = [*messages, said], [*ids, *sampled]
    return steps


def shared(steps: Iterable[Step]) -> Trajectory:
    """Return the steps as a rollout makes them, turn by turn."""
    made = Trajectory()
    for step in steps:
        made = made.append(step)
    return made


def called(steps: Iterable[Step], sign: int = 1) -> list[StoredCall]:
    """Return steps as calls; with a negative sign the last one comes first."""
    return [StoredCall(name=str(at), order=sign * at, step=step) for at, step in enumerate(steps)]


def seconds(work: Callable[[], object]) -> float:
    """Return the best of some runs: what the work takes where nothing else runs."""
    taken = []
    for _ in range(REPEATS):
        gc.collect()
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def held(work: Callable[[], object]) -> tuple[int, int]:
    """Return how many bytes the result of some work holds, and how many there were at most."""
    gc.collect()
    tracemalloc.start()
    result = work()
    gc.collect()
    found = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return found


def written(forest: Forest, folder: Path, kind: str) -> int:
    """Write a forest's rows into a file of a kind; return its size."""
    path = folder / f"rows{kind}"
    rows, _ = entries(StoredConversation(name="s", forest=forest, first=1, last=1), SampleOptions())
    with open_sink(path, sys.stdout.buffer) as sink:
        for entry in rows:
            sink.write(entry)
    return path.stat().st_size


def stored(calls: Sequence[StoredCall], folder: Path) -> Path:
    """Write calls in tito's own form; return the file."""
    file = io.BytesIO()
    write_calls(file, "s", calls)
    path = folder / "calls.jsonl"
    path.write_bytes(file.getvalue())
    return path


@attrs.frozen
class Line:
    """What was done, and what it took."""

    name: str
    seconds: float
    held: int | None = None
    """Bytes of the result, in memory or in a file."""
    most: int | None = None
    """Bytes in memory at most."""

    def late(self, tokens: int) -> bool:
        """Tell whether it misses a target; rows alone have one."""
        return self.name.startswith("rows of") and (
            self.seconds > SECONDS or (self.held or 0) > BYTES * tokens
        )

    def cells(self, tokens: int) -> list[str]:
        """Return what the table shows."""
        per_token = ["" if one is None else f"{one / tokens:.1f}" for one in (self.held, self.most)]
        return [self.name, f"{self.seconds:.4f}", *per_token]


def both(name: str, work: Callable[[], object]) -> Line:
    """Measure time and memory."""
    return Line(name, seconds(work), *held(work))


def kernel(name: str, steps: Iterable[Step]) -> Iterator[Line]:
    """Measure what the kernel does."""
    calls, backwards = called(steps), called(steps, -1)
    forest = Forest.of(calls)
    assert make_rows(forest).rows[0].trained == TURNS * SAMPLED  # noqa: S101  # what follows measures that
    yield both(f"rows of a forest, {name}", partial(make_rows, forest))
    yield both(f"forest of calls, {name}", partial(Forest.of, calls))
    yield both(f"forest of calls, {name}, last ones first", partial(Forest.of, backwards))


def files(steps: Iterable[Step], folder: Path) -> Iterator[Line]:
    """Measure what files take; rows are made and written."""
    calls = called(steps)
    forest, path = Forest.of(calls), stored(calls, folder)
    yield Line("a row per call", seconds(partial(make_rows, forest, SampleOptions(rows=RowPer.CALL))))
    yield Line("reading the calls", seconds(lambda: list(conversations(path))), path.stat().st_size)
    for kind in KINDS:
        work = partial(written, forest, folder, kind)
        yield Line(f"writing {kind}", seconds(work), work())


def measured(folder: Path) -> Iterator[Line]:
    """Measure every part."""
    lists = session()
    steps = shared(lists)
    yield from kernel("shared", steps)
    yield from kernel("lists", lists)
    yield from files(steps, folder)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure what the rows of one long session cost, and print the table."""
    tokens = TURNS * (SAMPLED + BRIDGE)
    with TemporaryDirectory() as folder:
        found = list(
            track(
                measured(Path(folder)), "measuring", total=LINES, console=Console(stderr=True), transient=True
            )
        )
    title = f"{TURNS} turns, {tokens:,} tokens; rows may take {SECONDS} s and {BYTES} B a token"
    table = Table(title=title, title_justify="left")
    for heading in ("", "seconds", "bytes a token", "at most"):
        table.add_column(heading, justify="right" if heading else "left")
    for line in found:
        table.add_row(*line.cells(tokens), style="red" if line.late(tokens) else None)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
