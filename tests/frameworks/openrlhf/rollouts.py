"""Conversations in OpenRLHF's loop, with an environment that answers calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from attrs import define
from openrlhf.utils.agent import AgentInstanceBase

from tests.frameworks.laws.rollouts import QUESTION, TOOL, Given, Rollouts, Talk, asks, results
from tests.frameworks.sampler import Engine, calls_in
from tito_io.integrations.openrlhf import MessageAgentExecutor


@define
class Client:
    """Stands for vLLM, and gives what vLLM gives."""

    engine: Engine

    async def generate(self, ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        assert multi_modal_data is None
        reply = self.engine.sample(ids, params.max_tokens)
        logprobs = [{step.id: SimpleNamespace(logprob=step.logprob)} for step in reply.steps]
        output = SimpleNamespace(
            token_ids=reply.ids, text=reply.text, finish_reason=reply.finish_reason, logprobs=logprobs
        )
        return SimpleNamespace(outputs=[output])


class Adding(AgentInstanceBase):
    """An environment that answers calls, and asks once more without calls."""

    most: ClassVar[int] = 4
    known: ClassVar[bool] = True

    def __init__(self) -> None:
        self.turns = 0

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {**states, "observation": [QUESTION], "tools": [TOOL]}

    async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        self.turns += 1
        calls = calls_in(states["action_text"])
        new = [
            {"role": "tool", "tool_call_id": str(number), "content": "7"} for number, _ in enumerate(calls)
        ]
        turn = {"role": "assistant", "content": states["action_text"]}
        if calls:
            named = [{"id": str(n), "type": "function", "function": one} for n, one in enumerate(calls)]
            turn = {"role": "assistant", "content": "", "tool_calls": named}
        return {
            "rewards": torch.tensor(1.0),
            "environment_feedback": new or [{"role": "user", "content": "And then?"}],
            "done": self.turns == self.most,
            **({"turn": turn} if self.known else {}),
        }


async def run(executor: Any, tokenizer: Any, engine: Engine, prompt: Any = "unused") -> Any:
    """Return what OpenRLHF makes of a conversation."""
    params = SimpleNamespace(max_tokens=None, logprobs=1)
    return await executor.execute(prompt, "label", params, 4000, tokenizer, Client(engine))


class ROLLOUTS(Rollouts):
    """OpenRLHF."""

    tools = (TOOL,)
    between = ({asks("And then?"), results("7"), results("7", "7")},) * 3
    choices = ("end", "raise")

    async def talk(self, given: Given) -> Talk:
        executor = MessageAgentExecutor(Adding, **given.choice, **given.template_args)
        found = await run(executor, given.tokenizer, given.engine)
        ids = found["observation_tokens"]
        mask = [0] * len(ids)
        for start, stop in found["action_ranges"]:
            mask[start:stop] = [1] * (stop - start)
        return Talk(ids, mask, found["rollout_log_probs"], executor.built["ids"], executor.refused)
