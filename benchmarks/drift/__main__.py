"""Drift of a real engine's turns, measured: `python -m benchmarks.drift [--engine vllm] [--url URL]`.

200 conversations of 20 turns with tools, many at a time, retried, branched, edited, compacted and cut short
by seeded dice; by ids wherever that is proven. The calls are stored as `tito rollout --calls` stores them and
go through what `tito samples` and `tito audit` do. Every row's sampled ids are compared with the answers as
they were heard on the wire. Without `--url` an engine is started on this machine's processors, with a tiny
model of random weights (`tests/engines`). Ends with 1 where anything is amiss.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import attrs
from rich.console import Console
from rich.progress import Progress

from benchmarks.command import interruptible, whole
from tito_core.samples import SampleOptions
from tito_io.audit.rendering import AuditRendering
from tito_io.audit.report import audit_file
from tito_io.client.token_client import Counts, TokenClient
from tito_io.engines.protocol import UnreachableError
from tito_io.families.family import Family
from tito_io.samples.forms.tito import CallFile
from tito_io.samples.read import conversations
from tito_io.samples.rows import to_rows

from .agent import Agent
from .place import Place, bound, lent
from .proof import proof
from .rates import Rates
from .show import Found, Outcome
from .tap import WHOSE, Tap
from .voice import Voice

CONVERSATIONS, TURNS, TOGETHER = 200, 20, 32


@attrs.define
class Run:
    """All conversations with one engine."""

    place: Place
    folder: Path
    args: argparse.Namespace
    tap: Tap
    acts: Counter[str] = attrs.field(factory=Counter)
    errors: list[str] = attrs.field(factory=list)
    counts: dict[str, Counts] = attrs.field(factory=dict)
    """By voice."""

    async def talk(self, voices: list[Voice], tick: Callable[[], None]) -> None:
        """Have every conversation, some at a time; voices take turns."""
        engine = self.place.engine(self.tap)
        family = Family.load(self.place.family)
        clients = {voice.name: TokenClient(engine, renderer=partial(bound, family)) for voice in voices}
        self.counts = {name: client.counts for name, client in clients.items()}
        limit = anyio.CapacityLimiter(self.args.together)
        try:
            async with anyio.create_task_group() as group:
                for number in range(self.args.conversations):
                    voice = voices[number % len(voices)]
                    group.start_soon(self._one, clients[voice.name], voice, number, limit, tick)
        finally:
            await engine.aclose()

    async def _one(
        self,
        client: TokenClient,
        voice: Voice,
        number: int,
        limit: anyio.CapacityLimiter,
        tick: Callable[[], None],
    ) -> None:
        """Have one conversation; its calls go to a file of its own."""
        async with limit:
            name = f"{voice.name}-{number:05}"
            WHOSE.set(name)
            dice = random.Random(f"{self.args.seed}/{number}")  # noqa: S311  # a benchmark's, not secrets
            with CallFile(self.folder / voice.name / f"{name}.jsonl", name) as file:
                agent = Agent(client, voice, file, dice)
                try:
                    await agent.run(self.args.turns)
                except UnreachableError as error:
                    self.errors.append(f"{name} broke off: {error!s:.200}")
            self.acts += agent.acts
            self.errors += agent.errors
            tick()

    def found(self, voice: Voice) -> Found:
        """Make rows of a voice's calls and audit them."""
        path = joined(self.folder / voice.name)
        heard = {name: ids for name, ids in self.tap.heard.items() if name.startswith(f"{voice.name}-")}
        proved = proof(to_rows(conversations(path), SampleOptions()), heard)
        rates = Rates()
        report = audit_file(path, AuditRendering(family=self.place.family).load(), on_break=rates.add)
        return Found(
            voice=voice.name,
            told=voice.told,
            proof=proved,
            report=report,
            rates=rates.of(report.tally),
            counts=self.counts[voice.name],
        )


def joined(folder: Path) -> Path:
    """Return one file of all the files of a folder."""
    path = folder.with_suffix(".jsonl")
    with path.open("wb") as file:
        for one in sorted(folder.glob("*.jsonl")):
            file.write(one.read_bytes())
    return path


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift", description=__doc__)
    parser.add_argument("--engine", choices=("vllm", "sglang", "embedded"), default="vllm")
    parser.add_argument("--url", help="an engine that runs, of a model that --family is the folder of")
    parser.add_argument("--model", help="the name that it serves the model by, where it has several")
    parser.add_argument("--family", type=Path)
    parser.add_argument("--conversations", type=whole(1), default=CONVERSATIONS)
    parser.add_argument("--turns", type=whole(1), default=TURNS)
    parser.add_argument("--together", type=whole(1), default=TOGETHER, help="conversations at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the calls, which are thrown away otherwise")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    args = parser.parse_args()
    if args.url is not None and args.family is None:
        parser.error("--url needs --family: the audit renders with the model's folder")
    return args


def run(args: argparse.Namespace, folder: Path, console: Console) -> Outcome:
    """Have the conversations and look at them."""
    folder.mkdir(parents=True, exist_ok=True)
    with lent(args, folder, lambda line: console.print(f"[dim]{line}")) as place:
        voices = place.voices()
        for voice in voices:
            (folder / voice.name).mkdir(parents=True, exist_ok=True)
        talk = Run(place, folder, args, place.tap(args.seed))
        began = time.perf_counter()
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("conversations", total=args.conversations)
            anyio.run(talk.talk, voices, lambda: progress.advance(task))
        ended = time.perf_counter()
    found = [talk.found(voice) for voice in voices]
    return Outcome(
        engine=place.name,
        seed=args.seed,
        seconds=ended - began,
        looked=time.perf_counter() - ended,
        acts=talk.acts,
        errors=talk.errors,
        found=found,
    )


@interruptible
def main() -> None:
    """Print what drifts, and whether every sampled id is where it belongs."""
    args, console = arguments(), Console(stderr=True)
    with TemporaryDirectory() as folder:
        outcome = run(args, args.keep or Path(folder), console)
    if args.json:
        print(outcome.to_json().decode())
    else:
        Console().print(outcome.shown())
    sys.exit(0 if outcome.holds else 1)


if __name__ == "__main__":
    main()
