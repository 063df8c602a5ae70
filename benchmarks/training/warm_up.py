"""Supervised training on scripted games, so that a model writes valid calls before it is rewarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import attrs

from tito_io.families import Family

from .game import Guess, scripted
from .learner import Learner
from .plan import Plan
from .rows import TrainingRow
from .setting import END, Setting

GAMES = 16
"""Games of a step."""


def cut(family: Family, ids: list[int], rng: Random, share: float) -> list[int]:
    """Return ids of the same text, of which a share is cut in two, as a model writes now and then.

    A model that was taught one tokenization alone samples little else in a narrow task.
    """
    found = list[int]()
    for one in ids:
        text = family.decode([one])
        at = rng.randrange(1, len(text)) if len(text) > 1 and rng.random() < share else 0
        found += [one] if not at else [*family.encode(text[:at]), *family.encode(text[at:])]
    return found


@attrs.frozen
class Teacher:
    """Writes scripted games as training rows.

    Half of them have the ids of the turns as they were written, and half have a history that was rendered:
    a model must know both, so that no arm begins with prompts that it has not seen.
    """

    family: Family
    setting: Setting
    share: float

    def rows(self, rng: Random, games: int) -> list[TrainingRow]:
        """Return rows of some games."""
        found = list[TrainingRow]()
        for number in range(games):
            guesses = [*scripted(rng)]
            found.append(self._exact(guesses, rng) if number % 2 else self._rendered(guesses, rng))
        return found

    def _turn(self, guess: Guess, rng: Random) -> list[int]:
        ids = self.family.encode(self.setting.written(guess, rng))
        return [*cut(self.family, ids, rng, self.share), *self.family.encode(END)]

    def _exact(self, guesses: list[Guess], rng: Random) -> TrainingRow:
        ids = self.family.ids(
            self.setting.opening(), tools=list(self.setting.tools) or None, add_generation_prompt=True
        )
        places = list[int]()
        for number, guess in enumerate(guesses):
            turn = self._turn(guess, rng)
            places += range(len(ids), len(ids) + len(turn))
            ids = [*ids, *turn]
            if number + 1 < len(guesses):
                ids += self.family.encode(self.setting.tail(guess.answer))
        return _row(ids, places)

    def _rendered(self, guesses: list[Guess], rng: Random) -> TrainingRow:
        messages = self.setting.opening()
        last = rng.randrange(len(guesses))
        for guess in guesses[:last]:
            messages += self.setting.answered(self._message(guess, rng), guess.answer)
        ids = self.family.ids(messages, tools=list(self.setting.tools) or None, add_generation_prompt=True)
        turn = self._turn(guesses[last], rng)
        return _row([*ids, *turn], [*range(len(ids), len(ids) + len(turn))])

    def _message(self, guess: Guess, rng: Random) -> dict[str, object]:
        if not self.setting.tools:
            return {"role": "assistant", "content": self.setting.written(guess, rng)}
        call = {"name": "guess", "arguments": guess.arguments(rng)}
        return {
            "role": "assistant",
            "content": "",
            "reasoning_content": guess.thought,
            "tool_calls": [{"id": "call", "type": "function", "function": call}],
        }


def _row(ids: list[int], places: list[int]) -> TrainingRow:
    return TrainingRow(ids=ids, places=places, old=[], sampled=[], rollout=0)


def warm_up(
    learner: Learner, teacher: Teacher, plan: Plan, report: Callable[[int, float], None]
) -> Iterator[float]:
    """Teach a model; yield the loss of each step."""
    rng = Random(1)  # noqa: S311  # the same games each time
    for step in range(plan.lessons):
        for group in learner.optimizer.param_groups:
            group["lr"] = plan.lesson_rate * min(1.0, (step + 1) / 20, 2 * (1 - step / plan.lessons))
        loss = learner.teach(teacher.rows(rng, GAMES))
        report(step, loss)
        yield loss
