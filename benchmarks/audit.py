"""Many small conversations through the audit, and the most memory it took:  python -m benchmarks.audit.

`--conversations 10000` for the full size. The file is written first and read as a stream; the family is the
embedded engine's, whose template drops thinking, and one turn in four is spelled letter by letter.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import track

from tito_core import Call, Step, render_key
from tito_io.audit.rendering import Rendering
from tito_io.audit.report import Report
from tito_io.audit.run import audit_file
from tito_io.embedded import write_family
from tito_io.family import Family
from tito_io.samples.forms.own import write_calls

CONVERSATIONS, TURNS = 1_000, 4
WORDS = ("perhaps", "the", "open", "window", "and", "a", "cold", "river", "tomorrow")


def conversation(family: Family, seed: int) -> list[Call]:
    """Return turns that go on from each other by ids."""
    dice = random.Random(seed)  # noqa: S311  # texts to be measured with, not secrets
    close, key = family.encode("<|done|>\n"), render_key()
    calls: list[Call] = []
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
        calls.append(Call(name=f"t{turn}", order=turn, step=step))
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


def measured(path: Path, folder: Path) -> tuple[Report, float, float]:
    """Return the report, the seconds, and by how many MiB the audit raised the peak."""
    renderer = Rendering(family=folder).load()
    before, start = resident(), time.perf_counter()
    report = audit_file(path, renderer)
    return report, time.perf_counter() - start, resident() - before


def main() -> None:
    """Print what an audit costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=CONVERSATIONS)
    count = parser.parse_args().conversations
    os.nice(10)
    with TemporaryDirectory() as folder:
        family = write_family(Path(folder) / "family")
        path = stored(Path(folder) / "rollouts.jsonl", family, count)
        size = path.stat().st_size / 2**20
        report, seconds, grown = measured(path, family)
    tally = report.tally
    print(f"{tally.conversations:,} conversations, {tally.calls:,} prompts, {size:.1f} MiB")
    print(f"{seconds:.1f} s, {seconds / tally.conversations * 1e3:.2f} ms a conversation")
    print(f"{tally.breaks:,} breaks, {len(report.choice.shown)} held to be shown")
    print(f"peak {resident():.0f} MiB, {grown:.1f} MiB of it since the family was loaded")


if __name__ == "__main__":
    main()
