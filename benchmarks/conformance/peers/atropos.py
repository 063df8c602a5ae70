"""The managed server of Atropos: it keeps the ids of a text that the next prompt begins with."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from atroposlib.envs.server_handling.managed_server import ManagedServer

from benchmarks.conformance.asked import Asked, NotOffered

PACKAGE, OPERATION = "atroposlib", "`chat_completion` of `ManagedServer`"


class Engine:
    """Stands for the server under the managed one: it samples what the trajectory says.

    Args:
        steps: The steps of the trajectory, in their order.
    """

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        """Keep the steps."""
        self.steps = steps
        self.config = SimpleNamespace(model_name="toy")
        self.asked: list[int] = []

    async def tokens_and_logprobs_completion(self, *, input_ids: list[int], **_: Any) -> Any:
        """Return the next step's ids, and keep what was asked."""
        self.asked = list(input_ids)
        step: Any = self.steps.pop(0) if self.steps else {"prompt_ids": [], "sampled_ids": [], "cut": False}
        sampled = list(step["sampled_ids"])
        finish = "length" if step["cut"] else "stop"
        return list(step["prompt_ids"]), [sampled], [[-0.5] * len(sampled)], [finish]


def next_prompt(asked: Asked) -> list[int] | None:
    """Take the steps one by one, and return the ids that the server under it would get."""
    if asked.tools:
        raise NotOffered("tools in the chat template without vLLM's parsers")
    asked.without_arguments()
    return asyncio.run(_ask(asked))


async def _ask(asked: Asked) -> list[int] | None:
    steps = list(asked.question["trajectory"])
    engine = Engine(list(steps))
    managed = ManagedServer(engine, tokenizer=asked.tokenizer)
    for step in steps:
        await managed.chat_completion(messages=step["messages"])
    nodes = list(managed.current_nodes)
    await managed.chat_completion(messages=asked.question["messages"])
    extends = any(engine.asked[: len(node.tokens)] == node.tokens for node in nodes)
    return engine.asked if extends else None
