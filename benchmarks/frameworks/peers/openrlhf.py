"""OpenRLHF's loop with an environment that answers with texts, and tito's with messages."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import attrs
import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

from benchmarks.frameworks.turns import Extend, Turn, continued
from tests.frameworks.turns import stop_ids
from tito_io.integrations.openrlhf import MessageAgentExecutor

MOST = 100_000
"""More ids than any of the conversations has."""


class AskedError(Exception):
    """The loop asks its engine for the turn after the one that was sampled."""

    def __init__(self, ids: list[int]) -> None:
        super().__init__()
        self.ids = ids


@attrs.define
class Engine:
    """Samples the ids of a turn, and raises with the prompt that comes next.

    Attributes:
        turn: The turn.
        text: Its text.
        prompt: The prompt that it is sampled after.
    """

    turn: Turn
    text: str
    prompt: list[int] | None = None

    async def generate(self, ids: list[int], *_: Any, **__: Any) -> Any:
        """Return the turn, once."""
        if self.prompt is not None:
            raise AskedError(list(ids))
        self.prompt = list(ids)
        ending = "length" if self.turn.ending == "cut" else "stop"
        output = SimpleNamespace(
            token_ids=self.turn.ids[self.turn.start :], text=self.text, finish_reason=ending
        )
        return SimpleNamespace(outputs=[output])


class Answering(AgentInstanceBase):
    """An environment that begins and answers with what it is given."""

    def __init__(self, first: dict[str, Any], answer: dict[str, Any]) -> None:
        self.first, self.answer = first, answer

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Return the first observation."""
        return {**states, **self.first}

    async def step(self, _: dict[str, Any], **__: Any) -> dict[str, Any]:
        """Return the answer to the turn."""
        return {"rewards": torch.tensor(0.0), "done": False, **self.answer}


def own(tokenizer: Any, _: str) -> Extend:
    """Return the prompt of OpenRLHF's loop.

    An environment of OpenRLHF writes the chat format into its texts. This one writes what the template has
    after the stop of a turn, as `examples/python/vlm_multiturn_agent.py` of OpenRLHF does for Qwen.
    """

    def texts(turn: Turn) -> tuple[dict[str, Any], dict[str, Any]]:
        stop = len(turn.ids) + (1 if turn.ending == "cut" else -1)
        first = {"observation": tokenizer.decode(turn.ids[: turn.start])}
        return first, {"environment_feedback": tokenizer.decode(turn.prompt.render[stop + 1 :])}

    return partial(following, asyncio.Runner(), MultiTurnAgentExecutor(Answering), tokenizer, texts)


def tito(tokenizer: Any, family: str) -> Extend:
    """Return the prompt of the same loop, whose environment answers with messages."""

    def messages(turn: Turn) -> tuple[dict[str, Any], dict[str, Any]]:
        said = turn.prompt
        first = {"observation": list(said.history), "tools": said.tools}
        return first, {"environment_feedback": list(said.new), "turn": said.turn}

    executor = MessageAgentExecutor(Answering, stop_ids=stop_ids(family), on_refusal="raise")
    return partial(following, asyncio.Runner(), executor, tokenizer, messages)


def following(runner: Any, executor: Any, tokenizer: Any, answers: Any, turn: Turn) -> list[int]:
    """Return the prompt that the loop asks its engine for after a turn."""
    executor.agent_instance_cls = partial(Answering, *answers(turn))
    engine = Engine(turn, tokenizer.decode(turn.ids[turn.start :]))
    params = SimpleNamespace(max_tokens=None, logprobs=None)
    try:
        runner.run(executor.execute("", "", params, MOST, tokenizer, engine))
    except AskedError as asked:
        assert engine.prompt is not None  # noqa: S101  # for the type: the engine has it before it raises
        return continued(turn, engine.prompt, asked.ids)
    raise AssertionError("OpenRLHF's loop ended before it asked for the next turn")
