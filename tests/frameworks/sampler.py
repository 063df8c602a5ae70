"""The sampler of random text in the place of a framework's engine: its turns have the faults of real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from attrs import define, field, frozen

from tito_io.embedded import FaultRates, Generation, Sampler, SamplingSettings, generate

DONE, OVER = 1517, 1515
"""The stop that the template of the embedded family writes, and another one."""

CALLS = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@frozen
class Turn:
    """Prompt, sampled ids and log-probabilities of a turn."""

    prompt: list[int]
    ids: list[int]
    logprobs: list[float]

    @property
    def all(self) -> list[int]:
        """Prompt and sampled ids."""
        return [*self.prompt, *self.ids]


@define(slots=False)
class Engine:
    """Samples turns and keeps them.

    Attributes:
        seed: The seed.
        most: The limit of a turn.
        faults: How often turns have which fault.
        turns: The turns so far.
    """

    seed: int = 0
    most: int = 300
    faults: FaultRates = field(factory=FaultRates)
    turns: list[Turn] = field(factory=list)

    def sample(self, prompt: Sequence[int], most: int | None = None) -> Generation:
        """Sample a turn."""
        limit = self.most if most is None else min(most, self.most)
        reply = generate(Sampler(self.seed, self.faults), list(prompt), SamplingSettings(max_tokens=limit))
        self.turns.append(Turn(list(prompt), reply.ids, [step.logprob for step in reply.steps]))
        return reply


def calls_in(text: str) -> list[dict[str, Any]]:
    """Return the calls in a sampled text that have a name and arguments."""
    return [call for one in CALLS.findall(text) if (call := _call(one)).keys() >= {"name", "arguments"}]


def _call(text: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}
    return found
