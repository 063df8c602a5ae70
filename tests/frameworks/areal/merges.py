"""Next prompts by AReaL's function, for interactions that it would hold."""

from __future__ import annotations

from functools import partial
from typing import Any

from areal.api.io_struct import ModelResponse
from areal.experimental.openai import client
from areal.experimental.openai.types import InteractionWithTokenLogpReward
from jinja2.exceptions import TemplateError

from tests.frameworks.laws.merges import Merge, Merges
from tests.frameworks.turns import SampledPrompt
from tito_core.seams.seam import common_prefix
from tito_io.integrations.areal import SEAM, ConcatenatedPrompts
from tito_io.integrations.shared_prompts import SharedPrompts


class MERGES(Merges):
    """AReaL."""

    raises = (RuntimeError, ValueError, TemplateError)

    def ours(self) -> Merge:
        return partial(self._by, ConcatenatedPrompts(SharedPrompts(stop_ids=self.stops)))

    def theirs(self) -> Merge:
        return partial(self._by, getattr(client, SEAM))

    def _by(self, concatenate: Any, case: SampledPrompt) -> list[int]:
        new = [dict(message) for message in case.new]
        ids: list[int] = concatenate(new, self._parent(case), self.tokenizer, tools=case.tools)
        return ids

    def _parent(self, case: SampledPrompt) -> InteractionWithTokenLogpReward:
        """Return the interaction that a case continues."""
        prompt = self.tokenizer.apply_chat_template(
            case.history, add_generation_prompt=True, tools=case.tools, return_dict=False
        )
        start = common_prefix(prompt, case.ids)
        response = ModelResponse(
            input_tokens=case.ids[:start],
            output_tokens=case.ids[start:],
            stop_reason="length" if case.cut else "stop",
            tokenizer=self.tokenizer,
        )
        return InteractionWithTokenLogpReward(
            model_response=response,
            messages=[dict(message) for message in case.history],
            output_message_list=[dict(case.turn)],
            chat_template_type="concat",
        )
