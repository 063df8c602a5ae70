"""Rollouts as NeMo Gym runs them on NeMo-RL's server: the ids of a turn go on its message to the next one."""

from __future__ import annotations

from typing import Any

import attrs

from tests.frameworks.laws.rollouts import QUESTION, TOOL, Given, Rollouts, Talk, results
from tests.frameworks.nemo.trainer import trained_sequence
from tests.frameworks.sampler import Engine
from tito_io.integrations.nemo import ServerPrompts

CALL = {"id": "a", "type": "function", "function": {"name": "add", "arguments": {}}}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "7"}


@attrs.define
class ChatServer:
    """NeMo-RL's server; its turns have their ids (`vllm/vllm_worker_async.py` in NVIDIA-NeMo/RL 7ea279a)."""

    tokenizer: Any
    prompts: ServerPrompts
    engine: Engine

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return an assistant message."""
        prompt = self.prompts.prompt_token_ids(self.tokenizer, request)
        reply = self.engine.sample(prompt)
        return {
            "role": "assistant",
            "content": self.tokenizer.decode(reply.ids, skip_special_tokens=True),
            "tool_calls": [CALL],
            "prompt_token_ids": prompt,
            "generation_token_ids": reply.ids,
            "generation_log_probs": [step.logprob for step in reply.steps],
        }


def rolled_out(
    server: ChatServer, count: int, **request: Any
) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Return the turns of a rollout, and the messages of each prompt."""
    messages: list[Any] = [QUESTION]
    turns, asked = [], []
    for _ in range(count):
        asked.append(messages)
        turns.append(server.answer({"messages": messages, "tools": [TOOL], **request}))
        messages = [*messages, turns[-1], RESULT]
    return turns, asked


class ROLLOUTS(Rollouts):
    """NeMo-RL with NeMo Gym."""

    tools = (TOOL,)
    between = ({results("7")},) * 3
    choices = ("rerender", "raise")

    async def talk(self, given: Given) -> Talk:
        prompts = ServerPrompts(on_refusal=given.on_refusal or "raise")
        variables = {"chat_template_kwargs": given.template_args}
        turns, asked = rolled_out(ChatServer(given.tokenizer, prompts, given.engine), self.turns, **variables)
        found = trained_sequence(turns[-1:] if prompts.refused else turns)
        return Talk(found.ids, found.mask, found.logprobs, prompts.built["ids"], prompts.refused, asked)
