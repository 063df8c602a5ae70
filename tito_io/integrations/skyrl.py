"""SkyRL: a generator whose observations are what the chat template writes, for any template.

Relies on SkyRL 0.3 and 0.4: `skyrl/train/generators/skyrl_gym_generator.py`, whose `agent_loop` calls
`get_obs_ids_from_obs`, and then `_update_agent_loop_state_with_multiturn_chat_template` with the turn's ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from tito_core import InputError, Message, Refusal
from tito_io.integrations.arguments import check_on_refusal
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.next_prompts import CountsPrompts, NextPrompts

GENERATOR = "skyrl.train.generators.skyrl_gym_generator:SkyRLGymGenerator"
APPEND = "_update_agent_loop_state_with_multiturn_chat_template"
SEAMS: Seams = {
    f"{GENERATOR}.get_obs_ids_from_obs": ("new_obs", "is_done"),
    f"{GENERATOR}.{APPEND}": ("agent_loop_state", "turn_output"),
}
required("skyrl", SEAMS)

from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator


class BridgeGenerator(CountsPrompts, SkyRLGymGenerator):
    """A `SkyRLGymGenerator` that writes around observations what the chat template writes there.

    Sampled ids stay as they are; what is missing of a turn's close is written, and its loss mask is 0.

    Args:
        given: The arguments of `SkyRLGymGenerator`.
        stop_ids: The ids that end a turn. None: those of the tokenizer's folder or its end of sequence.
        on_refusal: What to do where an observation cannot be written: "end" the trajectory, or "raise".
        named: Further arguments of `SkyRLGymGenerator` by name.

    Raises:
        InputError: `on_refusal` is something else, or the generator is set to render whole conversations.
    """

    def __init__(
        self,
        *given: Any,
        stop_ids: Sequence[int] | None = None,
        on_refusal: Literal["end", "raise"] = "end",
        **named: Any,
    ) -> None:
        super().__init__(*given, **named)
        check_on_refusal(on_refusal, ("end", "raise"))
        config = self.generator_cfg
        if (
            self.custom_chat_template is not None
            or config.step_wise_trajectories
            or not self.use_conversation_multi_turn
        ):
            raise InputError(
                "generator_cfg: chat_template and step_wise_trajectories render whole conversations anew;"
                " leave them out, and set use_conversation_multi_turn"
            )
        self._prompts = NextPrompts.of(
            self.tokenizer,
            stop_ids=stop_ids,
            template_args=config.chat_template_kwargs,
            on_refusal=on_refusal,
        )

    def get_obs_ids_from_obs(self, new_obs: list[Message], is_done: bool) -> list[int]:  # noqa: ARG002  # SkyRL's arguments
        """Return nothing: the ids depend on the turn, which SkyRL does not give here."""
        return []

    def _update_agent_loop_state_with_multiturn_chat_template(
        self, agent_loop_state: Any, turn_output: Any
    ) -> Any:
        """Give the turn the ids of its observation, and let SkyRL append both."""
        if not agent_loop_state.done:
            found = self._observed(agent_loop_state, turn_output)
            agent_loop_state.done = isinstance(found, Refusal)
            turn_output.obs_ids = [] if isinstance(found, Refusal) else list(found)
        return super()._update_agent_loop_state_with_multiturn_chat_template(agent_loop_state, turn_output)

    def _observed(self, state: Any, turn: Any) -> Sequence[int] | Refusal:
        answers_calls = any(message["role"] == "tool" for message in turn.new_obs)
        text = turn.output.removesuffix(self.tokenizer.eos_token)
        found = self._prompts.extend(
            [*state.input_ids, *turn.output_ids],
            turn.new_obs,
            # SkyRL keeps calls as text; the bridge tries turns that have calls.
            turn=None if answers_calls else {"role": "assistant", "content": text},
            history=state.chat_history,
        )
        return found if isinstance(found, Refusal) else found.added
