"""Observations by the integration and by SkyRL's own arithmetic."""

from __future__ import annotations

from functools import partial
from typing import Any

from jinja2.exceptions import TemplateError
from skyrl.train.config import GeneratorConfig, SkyRLGymConfig
from skyrl.train.generators.skyrl_gym_generator import AgentLoopState, SkyRLGymGenerator, TurnOutput

from tests.frameworks.laws.merges import Merge, Merges
from tests.frameworks.turns import SampledPrompt
from tito_io.integrations.skyrl import BridgeGenerator


class MERGES(Merges):
    """SkyRL, which gives a template no tools."""

    raises = (TemplateError, TypeError, AssertionError)  # its constructor's too

    def takes(self, case: SampledPrompt) -> bool:
        return not case.tools

    def ours(self) -> Merge:
        return self._by(BridgeGenerator, stop_ids=self.stops, on_refusal="raise")

    def theirs(self) -> Merge:
        return self._by(SkyRLGymGenerator)

    def _by(self, kind: type[SkyRLGymGenerator], **given: Any) -> Merge:
        settings = GeneratorConfig(), SkyRLGymConfig(max_env_workers=0)
        return partial(_appended, kind(*settings, None, self.tokenizer, **given))


def _appended(generator: Any, case: SampledPrompt) -> list[int]:
    """Return the ids of prompt, turn and observation."""
    new = [dict(message) for message in case.new]
    state = AgentLoopState(
        chat_history=[dict(message) for message in case.history],
        input_ids=[],
        loss_mask=[],
        rollout_logprobs=None,
        response_end_idx=None,
        done=False,
    )
    ids = generator.get_obs_ids_from_obs(new, is_done=False)
    turn = TurnOutput(str(case.turn["content"]), list(case.ids), None, new, obs_ids=ids, reward=1.0)
    state = generator._update_agent_loop_state_with_multiturn_chat_template(state, turn)
    found: list[int] = state.input_ids
    return found
