"""Real families: after a turn stands what the template writes, or the observation is refused."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
from skyrl.train.generators.skyrl_gym_generator import AgentLoopState, SkyRLGymGenerator, TurnOutput
from transformers import AutoTokenizer

from tests.frameworks.turns import SampledPrompt, sampled_prompts, stop_ids
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_io.integrations.skyrl import BridgeGenerator

pytestmark = needs_families


def made_by(kind: type[SkyRLGymGenerator], tokenizer: Any, **given: Any) -> Any:
    """Return a generator, None if SkyRL's constructor does not take the template."""
    try:
        return kind(GeneratorConfig(), SkyRLGymConfig(max_env_workers=0), None, tokenizer, **given)
    except (TemplateError, TypeError, AssertionError):
        return None


def appended(generator: Any, case: SampledPrompt) -> list[int] | None:
    """Return the ids of prompt, turn and observation; None if there is an error or a refusal."""
    new = [dict(message) for message in case.new]
    state = AgentLoopState(
        chat_history=[dict(message) for message in case.history],
        input_ids=[],
        loss_mask=[],
        rollout_logprobs=None,
        response_end_idx=None,
        done=False,
    )
    try:
        ids = generator.get_obs_ids_from_obs(new, is_done=False)
    except (TemplateError, TypeError):
        return None
    turn = TurnOutput(str(case.turn["content"]), list(case.ids), None, new, ids, None, 1.0)
    state = generator._update_agent_loop_state_with_multiturn_chat_template(state, turn)
    found: list[int] = state.input_ids
    return None if state.done else found


@pytest.mark.parametrize("name", NAMES)
def test_observations_are_what_the_template_writes(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FAMILIES / name)
    ours = made_by(BridgeGenerator, tokenizer, stop_ids=stop_ids(name))
    if ours is None:
        pytest.skip("SkyRL's constructor does not take the template")
    own = made_by(SkyRLGymGenerator, tokenizer)
    right = refused = theirs = 0
    for case in sampled_prompts(tokenizer, stop_ids(name)):
        if case.tools:  # SkyRL gives a template no tools
            continue
        found = appended(ours, case)
        assert found in (None, case.expected), case.case
        right += found is not None
        refused += found is None
        theirs += appended(own, case) == case.expected
    assert refused == 0
    assert right >= theirs
    if name != "gpt-oss":  # it ends a turn without calls by a token that is no stop when rendered
        assert right == 2
