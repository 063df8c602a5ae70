"""How each model is trained; all arms and seeds of a model are trained alike."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class Plan:
    """How a model is trained.

    Attributes:
        name: The model's name.
        seeds: Runs of each arm.
        updates: Updates of a run.
        groups: Secrets of an update.
        size: Games of each secret.
        rate: Learning rate.
        lessons: Steps of the warm-up.
        lesson_rate: Its learning rate.
        cut: Share of the ids of a taught turn that are cut in two; see `warm_up`.
        layers: How many of the last layers train; None: everything does.
        together: Rows that are computed at once.
        save_every: Updates between checkpoints.
        max_tokens: The most ids of a turn.
        says: What it is, for the page.
    """

    name: str
    seeds: int
    updates: int
    groups: int
    size: int
    rate: float
    lessons: int
    lesson_rate: float
    cut: float
    layers: int | None
    together: int
    save_every: int
    max_tokens: int
    says: str


PLANS: Mapping[str, Plan] = {
    one.name: one
    for one in (
        Plan(
            name="small",
            seeds=10,
            updates=60,
            groups=4,
            size=8,
            rate=5e-4,
            lessons=1000,
            lesson_rate=3e-3,
            cut=0.02,
            layers=None,
            together=32,
            save_every=10,
            max_tokens=32,
            says="a Qwen3 of 0.4 M parameters, trained from scratch, with a byte-level BPE of 640 ids",
        ),
        Plan(
            name="smollm2",
            seeds=3,
            updates=40,
            groups=2,
            size=8,
            rate=1e-4,
            lessons=60,
            lesson_rate=2e-4,
            cut=0.0,
            layers=4,
            together=8,
            save_every=2,
            max_tokens=72,
            says="SmolLM2-135M-Instruct in float32, of which the last 4 of 30 layers train",
        ),
    )
}
