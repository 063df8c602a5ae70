"""Play games with a model: all games of an update side by side, a turn at a time."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import attrs

from tito_core import Message, Step, Trajectory
from tito_io.client import TokenClient

from .game import RIGHT, TURNS, answer
from .setting import Setting


@attrs.define(eq=False)
class Rollout:
    """One game.

    Attributes:
        secret: The number to find.
        group: Which games have the same secret: rewards are compared within it.
        messages: The conversation so far, as a client has it.
        steps: The sampled turns.
        over: Whether it has ended.
        reward: 1 where the secret was found, else 0.
    """

    secret: int
    group: int
    messages: list[Message]
    steps: Trajectory = attrs.field(factory=Trajectory)
    over: bool = False
    reward: float = 0.0

    def add(self, setting: Setting, message: Message, step: Step) -> None:
        """Add a turn and the tool's answer; a turn without a valid call ends the game."""
        self.steps = self.steps.append(step)
        number = None if step.truncated else setting.number(message)
        said = RIGHT if number is None else answer(number, self.secret)
        self.reward = float(number == self.secret)
        self.over = said == RIGHT or len(self.steps) == TURNS
        self.messages += [message] if self.over else setting.answered(message, said)


@attrs.frozen(kw_only=True)
class Player:
    """Samples the turns of games.

    Attributes:
        client: Asks the model.
        setting: How turns are written.
        exact: Whether a prompt goes as the ids of the turn before and what follows them. Else all of it is
            rendered from messages.
        max_tokens: The most ids of a turn.
        temperature: Of sampling.
    """

    client: TokenClient
    setting: Setting
    exact: bool
    max_tokens: int
    temperature: float = 1.0

    async def play(self, secrets: Sequence[int], size: int, seed: int) -> list[Rollout]:
        """Return the games of an update, `size` for each secret. A seed gives each turn its own seed."""
        games = [
            Rollout(secret, group, self.setting.opening())
            for group, secret in enumerate(secrets)
            for _ in range(size)
        ]
        for turn in range(TURNS):
            # Each turn waits for all games, so that a batch has the same rows whenever it is repeated.
            async with anyio.create_task_group() as tasks:
                for place, game in enumerate(games):
                    if not game.over:
                        own = (seed * len(games) + place) * TURNS + turn
                        tasks.start_soon(self._turn, game, own)
        return games

    async def _turn(self, game: Rollout, seed: int) -> None:
        sampling = {"seed": seed, "max_tokens": self.max_tokens, "temperature": self.temperature}
        steps = game.steps if self.exact else Trajectory()
        done = await self.client.turn(steps, game.messages, tools=list(self.setting.tools), sampling=sampling)
        game.add(self.setting, done.message, done.step)
