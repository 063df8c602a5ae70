"""Log-probabilities of a model's forward pass, to compare an engine's with."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import attrs

from tito_core import Step


@attrs.frozen
class Reference:
    """The model in float32."""

    model: Any

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a model folder."""
        torch, transformers = import_module("torch"), import_module("transformers")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model.eval())

    def logprobs(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]:
        """Return the log-probability of each id from `start` on, after all ids before it."""
        torch = import_module("torch")
        with torch.no_grad():
            logits = self.model(torch.tensor([list(ids)])).logits[0, start - 1 : -1]
        every = torch.log_softmax(logits.float() / temperature, dim=-1)
        found: list[float] = every.gather(-1, torch.tensor(list(ids[start:]))[:, None])[:, 0].tolist()
        return found

    def distance(self, step: Step, temperature: float = 1.0) -> float:
        """Return how far a step's log-probabilities are from those of the forward pass, at most."""
        exact = self.logprobs(step.ids.tolist(), len(step.prompt_ids), temperature)
        assert step.logprobs is not None
        pairs = zip(step.logprobs, exact, strict=True)
        return max((abs(one - other) for one, other in pairs if one is not None), default=0.0)
