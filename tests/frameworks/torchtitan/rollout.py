"""A rollout group of torchtitan: its own rollouter, with replies and an environment that a script decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import attrs
from torchtitan.config import Configurable
from torchtitan.experiments.rl.components.training_sample_builder import TrainingSampleBuilder
from torchtitan.experiments.rl.environment import MessageEnv, MessageEnvInitOutput, MessageEnvStepOutput
from torchtitan.experiments.rl.renderer import RendererConfig
from torchtitan.experiments.rl.rollout.rollouter import Rollouter
from torchtitan.experiments.rl.rubrics import RewardFn, Rubric
from torchtitan.experiments.rl.types import Completion
from transformers import AutoTokenizer

from tito_io.integrations.renderers import StitchedConfig, StitchedRenderer


@dataclass(kw_only=True, slots=True)
class StitchedRendererConfig(RendererConfig):
    """What a user of torchtitan writes, with any options of the renderer."""

    options: Any = None

    def build(self, *, tokenizer_path: str) -> StitchedRenderer:
        """Return the renderer."""
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
        return StitchedRenderer(tokenizer, StitchedConfig(**(self.options or {})))


@attrs.frozen
class Script:
    """What happens in a rollout.

    Attributes:
        prompt: The first messages.
        tools: The tools, as torchtitan's environments give them.
        replies: The sampled ids of each turn.
        answers: The environment's messages after each turn but the last.
    """

    prompt: Sequence[Any]
    tools: Sequence[Any]
    replies: Sequence[list[int]]
    answers: Sequence[Sequence[Any]]


class Scripted(MessageEnv):
    """Answers each turn with the script's messages."""

    @dataclass(kw_only=True, slots=True)
    class Config(MessageEnv.Config):
        """Nothing to configure."""

    def __init__(self, config: Config, *, env_input: Script) -> None:  # noqa: ARG002  # torchtitan passes it
        self.script, self.turn = env_input, 0

    async def init(self) -> Any:
        return MessageEnvInitOutput(
            init_prompt_messages=list(self.script.prompt), tools=list(self.script.tools)
        )

    async def step(self, completion_message: Any) -> Any:
        assert completion_message["role"] == "assistant"
        if self.turn == len(self.script.answers):
            return MessageEnvStepOutput(done=True)
        self.turn += 1
        return MessageEnvStepOutput(env_messages=list(self.script.answers[self.turn - 1]))


class Nothing(Configurable):
    """A data set that is not read."""

    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        """Nothing to configure."""

    def __init__(self, config: Config) -> None:
        self.config = config


class One(RewardFn):
    """The reward is 1."""

    @dataclass(kw_only=True, slots=True)
    class Config(RewardFn.Config):
        """Nothing to configure."""

    async def __call__(self, rollout: Any, env_input: object) -> float:  # noqa: ARG002  # likewise
        assert rollout.status.is_terminal()
        return 1.0


def sampler(script: Script) -> Any:
    """Return torchtitan's `generate_fn`, which samples the script's replies in each rollout."""

    async def generate(
        prompt_token_ids: list[int], *, request_id: str, routing_session_id: str, sampling_config: Any
    ) -> Any:
        assert prompt_token_ids
        assert request_id.startswith(routing_session_id)
        assert sampling_config.seed is None
        ids = script.replies[int(request_id.rpartition("=")[2])]
        return Completion(
            min_policy_version=1,
            max_policy_version=1,
            request_id=request_id,
            token_ids=list(ids),
            token_logprobs=[-1.0] * len(ids),
            finish_reason="stop",
        )

    return generate


async def group(script: Script, renderer: Any, *, size: int = 1) -> Any:
    """Return a group of `size` equal rollouts."""
    rollouter = Rollouter.Config(
        train_dataset=Nothing.Config(),
        validation_dataset=Nothing.Config(),
        rubric=Rubric.Config(reward_fns=[One.Config()]),
        message_env=Scripted.Config(),
    ).build()
    return await rollouter.run_group_rollouts(
        generate_fn=sampler(script),
        sample=script,
        group_id=1,
        group_size=size,
        sampling=SimpleNamespace(seed=None),
        renderer=renderer,
    )


def training_samples(rollouts: Any) -> list[Any]:
    """Return what torchtitan's trainer gets of a group."""
    config = TrainingSampleBuilder.Config(drop_zero_std_reward_groups=False)
    return list(config.build().build_from_group(rollout_group=rollouts).training_samples)
