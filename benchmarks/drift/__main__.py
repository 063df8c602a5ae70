"""Measure drift by cause on a real engine: `python -m benchmarks.drift [--engine vllm] [--url URL]`.

By default 200 conversations of 20 turns with tools run at once. A seeded agent retries, branches, edits,
compacts and cuts turns short. Prompts are sent as ids wherever a bridge is proven. The calls are stored as
by `tito rollout --calls`, then converted as by `tito samples` and audited as by `tito audit`. The sampled ids
of every row are compared with the ids recorded on the wire. Without `--url` an engine is started on the CPU,
with a tiny model of random weights (`tests/engines`). Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import attrs
from rich.console import Console
from rich.progress import Progress

from benchmarks.command import interruptible, whole
from tito_core.samples import SampleOptions
from tito_io.audit.rendering import AuditRendering
from tito_io.audit.report import audit_each
from tito_io.client import TokenClient, rendered_by
from tito_io.client.token_client import Counts
from tito_io.engines.protocol import UnreachableError
from tito_io.families.family import Family
from tito_io.samples.forms.tito import CallFile
from tito_io.samples.read import conversations
from tito_io.samples.rows import to_rows

from .agent import Agent
from .engine import EngineAddress, engine_address
from .rates import Rates
from .recorder import CONVERSATION, Recorder
from .report import RunResult, StyleResult
from .row_check import check_rows
from .sampling import SamplingStyle

CONVERSATIONS, TURNS, TOGETHER = 200, 20, 32


@attrs.define
class Run:
    """All conversations with one engine.

    Attributes:
        address: The engine.
        folder: Folder of the calls, a file per conversation.
        args: The command line.
        recorder: Recorder of the sampled ids on the wire.
        acts: How often the agents did what.
        errors: Errors of the engine, and conversations that broke off.
        counts: Routes and refusals by sampling style.
    """

    address: EngineAddress
    folder: Path
    args: argparse.Namespace
    recorder: Recorder
    acts: Counter[str] = attrs.field(factory=Counter)
    errors: list[str] = attrs.field(factory=list)
    counts: dict[str, Counts] = attrs.field(factory=dict)

    async def converse(self, styles: list[SamplingStyle], tick: Callable[[], None]) -> None:
        """Run every conversation, `--together` at a time; the sampling styles alternate."""
        engine = self.address.engine(self.recorder)
        family = Family.load(self.address.family)
        clients = {style.name: TokenClient(engine, renderer=rendered_by(family)) for style in styles}
        self.counts = {name: client.counts for name, client in clients.items()}
        limit = anyio.CapacityLimiter(self.args.together)
        try:
            async with anyio.create_task_group() as group:
                for number in range(self.args.conversations):
                    style = styles[number % len(styles)]
                    group.start_soon(self._one, clients[style.name], style, number, limit, tick)
        finally:
            await engine.aclose()

    async def _one(
        self,
        client: TokenClient,
        style: SamplingStyle,
        number: int,
        limit: anyio.CapacityLimiter,
        tick: Callable[[], None],
    ) -> None:
        """Run one conversation; its calls go to a file of its own."""
        async with limit:
            name = f"{style.name}-{number:05}"
            CONVERSATION.set(name)
            rng = random.Random(f"{self.args.seed}/{number}")  # noqa: S311  # reproducible choices, not secrets
            with CallFile(self.folder / style.name / f"{name}.jsonl", name) as file:
                agent = Agent(client, style, file, rng)
                try:
                    await agent.run(self.args.turns)
                except UnreachableError as error:
                    self.errors.append(f"{name} broke off: {error!s:.200}")
            self.acts += agent.acts
            self.errors += agent.errors
            tick()

    def checked(self, style: SamplingStyle) -> StyleResult:
        """Make rows of a style's calls, check them, and audit the calls."""
        path = joined(self.folder / style.name)
        recorded = {
            name: ids for name, ids in self.recorder.recorded.items() if name.startswith(f"{style.name}-")
        }
        row_check = check_rows(to_rows(conversations(path), SampleOptions()), recorded)
        rates = Rates()
        report = audit_each(
            conversations(path), AuditRendering(family=self.address.family).load(), on_break=rates.add
        )
        return StyleResult(
            style=style.name,
            description=style.description,
            row_check=row_check,
            report=report,
            rates=rates.of(report.tally),
            counts=self.counts[style.name],
        )


def joined(folder: Path) -> Path:
    """Concatenate the files of a folder; return the new file."""
    path = folder.with_suffix(".jsonl")
    with path.open("wb") as file:
        for one in sorted(folder.glob("*.jsonl")):
            file.write(one.read_bytes())
    return path


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift", description=__doc__)
    parser.add_argument(
        "--engine",
        choices=("vllm", "sglang", "embedded"),
        default="vllm",
        help="Inference engine. `embedded` needs no server. Default: %(default)s.",
    )
    parser.add_argument("--url", help="URL of a running engine; needs --family. Default: start one.")
    parser.add_argument("--model", help="Name of the served model, if the engine at --url serves several.")
    parser.add_argument("--family", type=Path, help="Model folder of the engine at --url.")
    parser.add_argument(
        "--conversations", type=whole(1), default=CONVERSATIONS, help="Conversations. Default: %(default)s."
    )
    parser.add_argument(
        "--turns", type=whole(1), default=TURNS, help="Turns a conversation. Default: %(default)s."
    )
    parser.add_argument(
        "--together", type=whole(1), default=TOGETHER, help="Conversations at a time. Default: %(default)s."
    )
    parser.add_argument("--seed", type=int, default=0, help="Seed of all choices. Default: %(default)s.")
    parser.add_argument("--keep", type=Path, help="Folder to keep the calls in. Default: they are deleted.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object instead of tables.")
    args = parser.parse_args()
    if args.url is not None and args.family is None:
        parser.error("--url needs --family: the audit renders with the model's folder")
    return args


def run(args: argparse.Namespace, folder: Path, console: Console) -> RunResult:
    """Run the conversations, then check and audit them."""
    folder.mkdir(parents=True, exist_ok=True)
    with engine_address(args, folder, lambda line: console.print(f"[dim]{line}")) as address:
        styles = address.styles()
        for style in styles:
            (folder / style.name).mkdir(parents=True, exist_ok=True)
        session = Run(address, folder, args, address.recorder(args.seed))
        began = time.perf_counter()
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("conversations", total=args.conversations)
            anyio.run(session.converse, styles, lambda: progress.advance(task))
        ended = time.perf_counter()
    results = [session.checked(style) for style in styles]
    return RunResult(
        engine=address.name,
        seed=args.seed,
        seconds=ended - began,
        checking_seconds=time.perf_counter() - ended,
        acts=session.acts,
        errors=session.errors,
        results=results,
    )


@interruptible
def main() -> None:
    """Print drift by cause, and whether the rows have exactly the sampled ids."""
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
