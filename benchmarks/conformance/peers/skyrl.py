"""SkyRL's ids of observations."""

from __future__ import annotations

from importlib import import_module

import tests.frameworks.skyrl.conftest  # noqa: F401  # it lets SkyRL be imported on Python 3.11
from benchmarks.conformance.asked import Asked, NotOffered

PACKAGE, OPERATION = "skyrl", "observations of `SkyRLGymGenerator`"
config = import_module("skyrl.train.config")  # after its set-up
generators = import_module("skyrl.train.generators.skyrl_gym_generator")


def next_prompt(asked: Asked) -> list[int] | None:
    """Append the ids of an observation; templates get no tools."""
    if asked.tools:
        raise NotOffered("tools in the chat template")
    settings = config.GeneratorConfig(chat_template_kwargs=asked.arguments)
    generator = generators.SkyRLGymGenerator(
        settings, config.SkyRLGymConfig(max_env_workers=0), None, asked.tokenizer
    )
    step, new = asked.step, asked.new
    state = generators.AgentLoopState(
        chat_history=list(step["messages"]),
        input_ids=list(step["prompt_ids"]),
        loss_mask=[],
        rollout_logprobs=None,
        response_end_idx=None,
        done=False,
    )
    observed = generator.get_obs_ids_from_obs(new, is_done=False)
    turn = generators.TurnOutput(
        str(step["turn"]["content"]), list(step["sampled_ids"]), None, new, observed, None, 1.0
    )
    state = generator._update_agent_loop_state_with_multiturn_chat_template(state, turn)  # noqa: SLF001  # its own step
    found: list[int] = state.input_ids
    return found
