"""Many small conversations through the audit, and what memory it holds: `python -m benchmarks.audit`.

`--conversations 10000` for the full size. The file is written first and read as a stream; the family is the
embedded engine's, whose template drops thinking, and one turn in four is spelled letter by letter. Memory is
looked at after each tenth of the file: what does not grow is flat.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
from rich.console import Console
from rich.progress import track

from benchmarks.command import interruptible, whole
from tito_core import Step, render_key
from tito_core.samples import StoredCall
from tito_io.audit.rendering import AuditRendering
from tito_io.audit.report import AuditReport, audit_file
from tito_io.embedded import write_family
from tito_io.families.family import Family
from tito_io.samples.forms.tito import write_calls
from tito_io.samples.progress import RunProgress

CONVERSATIONS, TURNS, PARTS = 1_000, 4, 10
WORDS = ("perhaps", "the", "open", "window", "and", "a", "cold", "river", "tomorrow")


def conversation(family: Family, seed: int) -> list[StoredCall]:
    """Return turns that go on from each other by ids."""
    dice = random.Random(seed)  # noqa: S311  # texts to be measured with, not secrets
    close, key = family.encode("<|done|>\n"), render_key()
    calls: list[StoredCall] = []
    for turn in range(TURNS):
        asked = {"role": "user", "content": " ".join(dice.choices(WORDS, k=20))}
        thought, answer = (" ".join(dice.choices(WORDS, k=size)) for size in (10, 30))
        said = f"<think>\n{thought}\n</think>\n\n{answer}"
        letters = [number for letter in said for number in family.encode(letter)]
        ids = letters if dice.random() < 1 / TURNS else family.encode(said)
        last = calls[-1].step if calls else None
        before = [*last.messages] if last else []
        tail = family.encode(f"<|turn|>user\n{asked['content']}<|done|>\n<|turn|>assistant\n")
        fresh = family.ids([asked], add_generation_prompt=True)
        step = Step(
            prompt=[*before, asked],
            completion=[{"role": "assistant", "content": said}],
            prompt_ids=[*last.ids, *close[1:], *tail] if last else fresh,
            completion_ids=[*ids, close[0]],
            key=key,
        )
        calls.append(StoredCall(name=f"t{turn}", order=turn, step=step))
    return calls


def stored(path: Path, folder: Path, count: int) -> Path:
    """Write conversations, of which a hundred differ."""
    family = Family.load(folder)
    kinds = [conversation(family, seed) for seed in range(min(count, 100))]
    with path.open("wb") as file:
        for number in track(
            range(count), description="writing", console=Console(stderr=True), transient=True
        ):
            last = None
            for call in kinds[number % len(kinds)]:
                last = write_calls(file, f"c{number:06}", [call], last)
    return path


def resident() -> float:
    """Return the most memory that this process has held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def held() -> float:
    """Return the memory that this process holds now, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


@attrs.define
class Watching:
    """Looks at the memory after each part of a file."""

    size: int
    looks: list[float] = attrs.field(factory=list)
    """MiB."""

    def __call__(self, read: int) -> None:
        """Look, if another part is read."""
        if read * PARTS >= self.size * (len(self.looks) + 1):
            self.looks.append(held())


@attrs.frozen
class Spent:
    """What an audit cost."""

    report: AuditReport
    seconds: float
    cpu: float
    """Seconds of the processor."""
    looks: list[float]
    grown: float
    """By how many MiB the peak rose since the family was loaded."""


def measured(path: Path, folder: Path) -> Spent:
    """Audit a file."""
    renderer, watching = AuditRendering(family=folder).load(), Watching(path.stat().st_size)
    before, start, cpu = resident(), time.perf_counter(), time.process_time()
    progress = RunProgress(show=lambda state, _: watching(state.bytes_read))
    report = audit_file(path, renderer, progress=progress)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Spent(report, seconds, cpu, watching.looks, resident() - before)


def asked() -> int:
    """Read the command line: how many conversations."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument(
        "--conversations", type=whole(1), default=CONVERSATIONS, help="%(default)s by default"
    )
    count: int = parser.parse_args().conversations
    return count


@interruptible
def main() -> None:
    """Print what an audit costs."""
    count = asked()
    os.nice(10)
    with TemporaryDirectory() as folder:
        family = write_family(Path(folder) / "family")
        path = stored(Path(folder) / "rollouts.jsonl", family, count)
        size = path.stat().st_size / 2**20
        spent = measured(path, family)
    tally = spent.report.tally
    print(f"{tally.conversations:,} conversations, {tally.calls:,} prompts, {size:.1f} MiB")
    each = spent.cpu / tally.conversations * 1e3
    print(f"{spent.seconds:.1f} s, {spent.cpu:.1f} s of the processor, {each:.2f} ms a conversation")
    print(f"{tally.breaks:,} breaks, {len(spent.report.choice.shown)} held to be shown")
    print(f"MiB after each tenth of the file: {' '.join(f'{look:.0f}' for look in spent.looks)}")
    print(f"peak {resident():.0f} MiB, {spent.grown:.1f} MiB of it since the family was loaded")


if __name__ == "__main__":
    main()
