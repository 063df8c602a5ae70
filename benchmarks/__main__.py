"""How long a turn takes, beside the floor of comparing messages and copying ids:  python -m benchmarks."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tito_core import Message, Messages, Step, Trajectory, answer, stitch, stitching
from tito_core.stitch import Stitched

TURNS = (10, 100, 1_000, 3_000)
SAMPLED = [*range(1_000, 1_049), 2]
BRIDGE = 50
REPEATS = 15


def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render as a toy: its cost is no part of what is measured."""
    ids = [i for m in messages for i in (1, 10 + len(m["role"]), *str(m.get("content") or "").encode(), 2)]
    return [*ids, 1, 19] if add_generation_prompt else ids


def conversation(turns: int) -> list[dict[str, str]]:
    """Return alternating messages of some two hundred characters."""
    roles = ("user", "assistant")
    return [{"role": role, "content": f"{role} {t} " + "x" * 190} for t in range(turns) for role in roles]


def plain_steps(messages: list[dict[str, str]]) -> list[Step]:
    """Return the last two steps, as lists that share nothing."""
    turns = len(messages) // 2
    ids = [5] * BRIDGE + (SAMPLED + [5] * BRIDGE) * (turns - 1)
    return [
        Step(
            prompt=json.loads(json.dumps(messages[: 2 * t + 1])),
            completion=[messages[2 * t + 1]],
            prompt_ids=ids[: len(ids) - (turns - 1 - t) * (BRIDGE + len(SAMPLED))],
            completion_ids=SAMPLED,
        )
        for t in range(max(turns - 2, 0), turns)
    ]


def shared_steps(messages: list[dict[str, str]]) -> tuple[Trajectory, Messages]:
    """Return a whole rollout that shares its history, and the prompt that continues it."""
    first = Step(
        prompt=messages[:1], completion=messages[1:2], prompt_ids=[5] * BRIDGE, completion_ids=SAMPLED
    )
    trajectory = Trajectory([first])
    for t in range(1, len(messages) // 2):
        prompt = trajectory[-1].messages.then([messages[2 * t]])
        found = answer(stitching(trajectory, prompt, (2,)), tokenize)
        assert isinstance(found, Stitched)  # noqa: S101  # what follows measures that it is
        trajectory = trajectory.append(found.then(completion=[messages[2 * t + 1]], completion_ids=SAMPLED))
    return trajectory, trajectory[-1].messages.then([{"role": "user", "content": "next"}])


def milliseconds(work: Callable[[], Any]) -> float:
    """Return the median of some runs."""
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3


def measured(turns: int) -> tuple[float, float, float]:
    """Return the floor, `stitch` on lists, and the shared form, for one length of history."""
    messages = conversation(turns)
    steps = plain_steps(messages)
    prompt = [*json.loads(json.dumps(messages)), {"role": "user", "content": "next"}]
    other, ids = json.loads(json.dumps(prompt)), steps[-1].ids.tolist()
    half = len(ids) // 2
    head, rest = ids[:half], ids[half:]
    floor = milliseconds(lambda: (prompt == other, head + rest))
    lists = milliseconds(lambda: stitch(steps, prompt, (2,), tokenize))
    trajectory, following = shared_steps(messages)
    shared = milliseconds(lambda: answer(stitching(trajectory, following, (2,)), tokenize))
    return floor, lists, shared


def main() -> None:
    """Print the table."""
    table = Table(
        title="one turn, in ms (medians); the floor is == over the messages and one copy of the ids"
    )
    for heading in ("turns", "floor", "stitch, lists", "of floor", "stitching, Trajectory", "of floor"):
        table.add_column(heading, justify="right")
    for turns in track(TURNS, "measuring", console=Console(stderr=True)):
        floor, lists, shared = measured(turns)
        cells = (floor, lists, lists / floor, shared, shared / floor)
        table.add_row(f"{turns:,}", *(f"{cell:.2f}" for cell in cells))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
