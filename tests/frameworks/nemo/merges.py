"""`replace_prefix_tokens` of the integration; NeMo-RL's own cannot be installed."""

from __future__ import annotations

from tests.frameworks.laws.merges import Merge, Merges
from tests.frameworks.turns import SampledPrompt
from tito_io.integrations.nemo import ServerPrompts


class MERGES(Merges):
    """NeMo-RL."""

    def ours(self) -> Merge:
        prompts = ServerPrompts(stop_ids=self.stops)

        def replaced(case: SampledPrompt) -> list[int]:
            messages = [*case.history, case.turn, *case.new]
            return prompts.replace_prefix_tokens(self.tokenizer, case.ids, messages, tools=case.tools)

        return replaced
