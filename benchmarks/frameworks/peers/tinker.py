"""Observations of the Tinker cookbook, rendered by its renderers by hand, and tito's."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

from tinker_cookbook.renderers import Renderer, ToolCall, get_renderer
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult

from benchmarks.frameworks.turns import Extend, NotOffered, Turn, continued
from tests.frameworks.turns import stop_ids
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.tinker import BridgeEnv

RENDERERS = {
    "deepseek-v3": "deepseekv3",
    "gpt-oss": "gpt_oss_medium_reasoning",
    "kimi-k2": "kimi_k2",
    "llama3": "llama3",
    "nemotron3": "nemotron3_preserve_thinking",
    "qwen3": "qwen3",
    "qwen3.5": "qwen3_5_preserve_thinking",
}
"""The renderer of a family, where the cookbook has one."""
OPTIONS: dict[str, Any] = {"terminate_on_length": False}
"""A turn that was cut does not end the episode."""


class Answering(MessageEnv):
    """An environment that answers a turn with given messages.

    Attributes:
        history: The messages before the turn.
        new: The messages after it.
        before: The turn and what stands before it, once it was observed.
    """

    def __init__(self, history: list[Any], new: list[Any]) -> None:
        self.history, self.new = history, new
        self.before: list[Any] = []

    async def initial_observation(self) -> list[Any]:
        """Return the messages before the turn."""
        return list(self.history)

    async def step(self, message: Any) -> MessageStepResult:
        """Return the messages with the turn and those after it."""
        return MessageStepResult(0.0, episode_done=False, next_messages=[*self.history, message, *self.new])

    async def observe_truncated_response(self, message: Any) -> list[Any]:
        """Keep a turn that was cut."""
        self.before = [*self.history, message]
        return list(self.before)

    async def add_messages(self, messages: list[Any]) -> list[Any]:
        """Return the messages with others after a turn that was cut."""
        return [*self.before, *messages]


def own(tokenizer: Any, family: str) -> Extend:
    """Return the observations of `EnvFromMessageEnv`; tools stand where the renderer puts them."""
    renderer = renderer_of(tokenizer, family)

    def env(turn: Turn) -> EnvFromMessageEnv:
        history = spoken(turn.prompt.history)
        if turn.prompt.tools:
            tools = [tool["function"] for tool in turn.prompt.tools]
            system, *rest = history
            history = [*renderer.create_conversation_prefix_with_tools(tools, system["content"]), *rest]
        return EnvFromMessageEnv(renderer, Answering(history, spoken(turn.prompt.new)), **OPTIONS)

    return observing(env)


def tito(tokenizer: Any, family: str) -> Extend:
    """Return the observations of tito's `BridgeEnv`."""
    renderer, prompts = renderer_of(tokenizer, family), SharedPrompts(stop_ids=stop_ids(family))

    def env(turn: Turn) -> EnvFromMessageEnv:
        inner = Answering(spoken(turn.prompt.history), spoken(turn.prompt.new))
        return BridgeEnv(renderer, inner, prompts=prompts, tools=turn.prompt.tools, **OPTIONS)

    return observing(env)


def renderer_of(tokenizer: Any, family: str) -> Renderer:
    """Return the renderer of a family."""
    if family not in RENDERERS:
        raise NotOffered
    return get_renderer(RENDERERS[family], tokenizer, model_name=family)


def observing(make: Callable[[Turn], EnvFromMessageEnv]) -> Extend:
    """Return what asks an environment for the observation after a turn; None if the episode ends there."""
    runner, begun = asyncio.Runner(), dict[int, tuple[Turn, EnvFromMessageEnv, list[int]]]()

    def extend(turn: Turn) -> list[int] | None:
        if id(turn) not in begun:  # the first prompt is no part of the answer
            env = make(turn)
            observation, _ = runner.run(env.initial_observation())
            begun[id(turn)] = turn, env, observation.to_ints()
        _, env, prompt = begun[id(turn)]
        found = runner.run(following(copy.copy(env), turn))
        return None if found is None else continued(turn, prompt, found)

    return extend


async def following(env: EnvFromMessageEnv, turn: Turn) -> list[int] | None:
    """Return the observation after a turn."""
    cut = turn.ending == "cut"
    ending: Any = {"stop_reason": "length" if cut else "stop"}
    result = await env.step(turn.ids[turn.start :], extra=ending)
    if cut and not result.episode_done:
        observation, _ = await env.inject_messages(env.message_env.new)  # as rollout hooks do
        return list(observation.to_ints())
    return None if result.episode_done else list(result.next_observation.to_ints())


def spoken(messages: Any) -> list[Any]:
    """Return messages as the cookbook has them."""
    return [
        {**message, "tool_calls": [called(one) for one in message["tool_calls"]]}
        if message.get("tool_calls")
        else dict(message)
        for message in messages
    ]


def called(call: Any) -> ToolCall:
    """Return a tool call as the cookbook has it."""
    function = {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}
    return ToolCall(id=call["id"], function=ToolCall.FunctionBody(**function))
