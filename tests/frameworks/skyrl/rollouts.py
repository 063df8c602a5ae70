"""Trajectories of SkyRL's agent loop, in which a user asks again, and a tool answers the third turn."""

from __future__ import annotations

from typing import Any

import skyrl_gym
from attrs import define
from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
from skyrl_gym.envs.base_text_env import BaseTextEnv

from tests.frameworks.laws.rollouts import QUESTION, Given, Rollouts, Talk, asks, results
from tests.frameworks.sampler import Engine
from tito_io.integrations.skyrl import BridgeGenerator

TURNS = 4


class Asking(BaseTextEnv):
    """The environment."""

    def __init__(self, env_config: Any, extras: dict[str, Any]) -> None:  # noqa: ARG002  # SkyRL's arguments
        super().__init__()
        self.count = 0

    def step(self, action: str) -> Any:  # noqa: ARG002  # SkyRL's argument
        self.count += 1
        observation = {"role": "user", "content": "And then?"}
        if self.count == 3:
            observation |= {"role": "tool", "tool_call_id": "1"}
        done = self.count == TURNS
        return {"observations": [observation], "reward": 1.0, "done": done, "metadata": {}}


skyrl_gym.register(id="asking", entry_point=Asking)


@define
class Client:
    """Stands for SkyRL's client of an engine."""

    engine: Engine

    async def generate(self, request: Any, model: Any = None) -> Any:
        assert model is None
        (prompt,) = request["prompt_token_ids"]
        reply = self.engine.sample(prompt)
        return {
            "responses": [reply.text],
            "response_ids": [list(reply.ids)],
            "stop_reasons": [reply.finish_reason],
            "response_logprobs": [[step.logprob for step in reply.steps]],
        }

    async def finish_session(self, session: Any) -> None:
        assert session


async def run(
    tokenizer: Any, engine: Engine, kind: Any = BridgeGenerator, options: Any = None, **given: Any
) -> tuple[Any, Any]:
    """Run one trajectory; return it, and the generator."""
    config = GeneratorConfig(max_turns=TURNS, **(options or {}))
    config.sampling_params.logprobs = 0
    generator = kind(config, SkyRLGymConfig(max_env_workers=0), Client(engine), tokenizer, **given)
    return await generator.agent_loop([QUESTION], "asking", {}, 300, 4000), generator


class ROLLOUTS(Rollouts):
    """SkyRL."""

    between = ({asks("And then?")}, {asks("And then?")}, {results("And then?")})
    choices = ("end", "raise")

    def rejecting(self, template: str) -> str:
        """Return a template that takes no assistant; SkyRL's constructor asks one for another question."""
        return template.replace("message.role == 'assistant'", "false")

    async def talk(self, given: Given) -> Talk:
        options = {"chat_template_kwargs": given.template_args}
        found, generator = await run(given.tokenizer, given.engine, options=options, **given.choice)
        row = found.prompt_ids, found.response_ids, found.loss_mask, found.rollout_logprobs
        return Talk.of(*row, generator.built["ids"], generator.refused)
