"""One run: a model, a setting, an arm and a seed, with checkpoints from which it goes on."""

from __future__ import annotations

import asyncio
import fcntl
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import attrs
import torch

from tito_core.drift.diff import packed
from tito_core.samples.trie import common_length
from tito_io.atomic_write import replaced, write_atomically
from tito_io.client import TokenClient
from tito_io.engines.in_process import TransformersModel
from tito_io.families import Family

from .game import LEAST, MOST
from .learner import Learner
from .model import load
from .plan import Plan
from .rollout import Player, Rollout
from .rows import Arm, batch_of
from .setting import Setting
from .warm_up import Teacher, warm_up

Report = Callable[[str], None]


@contextmanager
def locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a folder, so that several commands may share the work; yields False where another one has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def save(path: Path, state: Any) -> None:
    """Write a checkpoint as a whole."""
    with replaced(path) as (file, _):
        torch.save(state, file)


@attrs.frozen(kw_only=True)
class Run:
    """One run.

    Attributes:
        plan: The model, and how it is trained.
        setting: How turns are written.
        arm: What trains.
        seed: Of secrets and samples; runs of other arms with this seed have the same.
        folder: The folder of all runs.
        gguf: The file of SmolLM2.
    """

    plan: Plan
    setting: Setting
    arm: Arm
    seed: int
    folder: Path
    gguf: Path | None = None

    @property
    def name(self) -> str:
        """The run's place below the folder."""
        return f"{self.plan.name}/{self.setting.name}/{self.arm.name}/seed-{self.seed}"

    @property
    def path(self) -> Path:
        """The run's own folder."""
        return self.folder / self.name

    def updates(self) -> list[dict[str, Any]]:
        """Return what is known of the updates so far."""
        file = self.path / "updates.jsonl"
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def train(self, report: Report) -> None:
        """Train to the end, from the last checkpoint on."""
        model, family, first = self._warm(report)
        learner = Learner.of(model, self.plan.rate, epochs=1, parts=4, together=self.plan.together)
        done = self._resumed(learner, first)
        lines = self.updates()[:done]
        self._write(lines)
        timed = Timed(model.generate)
        model.generate = timed
        for update in range(done, self.plan.updates):
            started = time.perf_counter()
            lines.append(asyncio.run(self._update(learner, family, timed, update)))
            lines[-1]["seconds"] = time.perf_counter() - started
            if (update + 1) % self.plan.save_every == 0 or update + 1 == self.plan.updates:
                save(self.path / "state.pt", self._state(learner, update + 1))
                self._write(lines)
            report(f"{self.name}: update {update + 1} of {self.plan.updates}, {shown(lines[-1])}")

    async def _update(self, learner: Learner, family: Family, timed: Timed, update: int) -> dict[str, Any]:
        seed = self.seed * 100_000 + update
        rng = Random(seed)  # noqa: S311  # secrets of a game
        secrets = [rng.randint(LEAST, MOST) for _ in range(self.plan.groups)]
        size = self.plan.size * self.plan.groups
        client = TokenClient(
            TransformersModel(learner.model, family, batch_size=size, output_format="hermes")
        )
        player = Player(
            client=client, setting=self.setting, exact=self.arm.exact, max_tokens=self.plan.max_tokens
        )
        timed.seconds, started = 0.0, time.perf_counter()
        games = await player.play(secrets, self.plan.size, seed)
        batch = batch_of(self.arm, games, self.setting, family)
        rolled = time.perf_counter()
        seen = learner.update(batch, self.arm, seed)
        await client.aclose()
        return {
            "update": update,
            "of": self.plan.updates,
            "reward": sum(game.reward for game in games) / len(games),
            "turns": sum(len(game.steps) for game in games) / len(games),
            "drifted": sum(batch.drifted) / len(games),
            "dropped": 1 - len({row.rollout for row in batch.rows}) / len(games),
            **seen,
            **prompts(games, exact=self.arm.exact),
            "by_messages": float(sum(client.counts.refusals.values())),
            "sampling": timed.seconds,
            "rendering": rolled - started - timed.seconds,
            "training": time.perf_counter() - rolled,
        }

    def _warm(self, report: Report) -> tuple[Any, Family, dict[str, Any]]:
        """Return the model after its warm-up, which is done once for all arms and seeds."""
        shared = self.folder / self.plan.name
        with locked(shared, wait=True):  # the tokenizer is written once, too
            model, family = load(self.plan, self.setting, shared, self.gguf)
        with locked(shared / self.setting.name, wait=True):
            file = shared / self.setting.name / "warm-up.pt"
            if not file.exists():
                learner = Learner.of(
                    model, self.plan.lesson_rate, epochs=1, parts=1, together=self.plan.together
                )
                teacher = Teacher(family, self.setting, self.plan.cut)

                def progress(step: int, loss: float) -> None:
                    if step % 20 == 0 or step + 1 == self.plan.lessons:
                        report(f"{file.parent}: warm-up {step + 1} of {self.plan.lessons}, loss {loss:.3f}")

                losses = [*warm_up(learner, teacher, self.plan, progress)]
                save(file, {"weights": own_weights(model), "losses": losses})
        return model, family, torch.load(file)["weights"]

    def _resumed(self, learner: Learner, first: dict[str, Any]) -> int:
        """Load the last checkpoint, or the warm-up; return how many updates are done."""
        file = self.path / "state.pt"
        state = torch.load(file) if file.exists() else None
        learner.model.load_state_dict(state["weights"] if state else first, strict=False)
        if state is None:
            return 0
        learner.optimizer.load_state_dict(state["optimizer"])
        return int(state["updates"])

    def _state(self, learner: Learner, updates: int) -> dict[str, Any]:
        """Return all that the next update depends on: random numbers come from the seed and its number."""
        return {
            "weights": own_weights(learner.model),
            "optimizer": learner.optimizer.state_dict(),
            "updates": updates,
        }

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        file = self.path / "updates.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, "".join(json.dumps(line) + "\n" for line in lines))


def own_weights(model: Any) -> dict[str, Any]:
    """Return the weights that train."""
    return {name: one.detach().clone() for name, one in model.named_parameters() if one.requires_grad}


def shown(line: dict[str, Any]) -> str:
    """Return an update's main figures as text."""
    return (
        f"reward {line['reward']:.2f}, drifted {line['drifted']:.0%}, k3 {line['k3']:.2e}, "
        f"{line['seconds']:.1f} s"
    )


@attrs.define
class Timed:
    """A function whose seconds are counted."""

    function: Callable[..., Any]
    seconds: float = 0.0

    def __call__(self, *args: Any, **more: Any) -> Any:
        """Call the function."""
        started = time.perf_counter()
        try:
            return self.function(*args, **more)
        finally:
            self.seconds += time.perf_counter() - started


def prompts(games: Sequence[Rollout], *, exact: bool) -> dict[str, float]:
    """Return how many prompt ids a prefix cache would hold, and how many were made of text.

    Attributes:
        prompt_ids: Ids of all prompts.
        cached_ids: Of them, those with which the turn before begins, prompt and sampled ids.
        encoded_ids: Of them, those that a tokenizer made in this turn: all, or those behind the turn before.
    """
    total, cached, kept = 0, 0, 0
    for game in games:
        total += sum(len(step.prompt_ids) for step in game.steps)
        for before, after in pairwise(game.steps):
            same = common_length(packed(before.ids.tolist()), packed(after.prompt_ids.tolist()))
            cached += same
            kept += same if exact and same == len(before.ids) else 0
    return {"prompt_ids": float(total), "cached_ids": float(cached), "encoded_ids": float(total - kept)}
