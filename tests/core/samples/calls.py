"""Calls and conversations to make forests of, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core import example
from tests.core.example import assistant, user
from tito_core import Ids, Message, Step, Trajectory
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest


def call(
    name: str,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    prompt: Sequence[Message] = (),
    words: str | None = None,
    **more: Any,
) -> StoredCall:
    """Return a call; what is about ids alone has no messages."""
    completion = [] if words is None else [assistant(words)]
    truncated = more.pop("truncated", False)
    step = Step(
        prompt=list(prompt),
        completion=completion,
        prompt_ids=prompt_ids,
        completion_ids=completion_ids,
        truncated=truncated,
    )
    return StoredCall(name=name, step=step, **more)


FIRST = example.step()


def rollout(turns: int, size: int = 1) -> list[StoredCall]:
    """Return a conversation whose steps share their history, each of `size` sampled words and a stop."""
    trajectory, prompt, ids = Trajectory(), FIRST.prompt, Ids.of(list(FIRST.prompt_ids))
    for turn in range(turns):
        step = Step(
            prompt=prompt,
            completion=[assistant(f"{turn}")],
            prompt_ids=ids,
            completion_ids=[1_000 + turn] * size + [2],
        )
        trajectory = trajectory.append(step)
        last = trajectory[-1]
        prompt, ids = last.messages.then([user(f"{turn}")]), last.ids.then((turn, 7)).packed()
    return [StoredCall(name=f"{i}", order=i, step=step) for i, step in enumerate(trajectory)]


def kinds(*calls: StoredCall) -> dict[str, tuple[str | None, str, str | None]]:
    """Return for each call its parent, its kind and the call that the kind refers to."""
    return {node.name: (node.parent, node.kind.name, node.of) for node in Forest.of(calls).nodes}


def counting(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[int]:
    """Count the calls of a function."""
    counts, real = [0], getattr(place, name)

    def counted(*args: Any) -> Any:
        counts[0] += 1
        return real(*args)

    monkeypatch.setattr(place, name, counted)
    return counts
