"""Merges by the integration, and by the class of Miles for a family."""

from __future__ import annotations

from functools import partial
from typing import Any

from jinja2.exceptions import TemplateError
from miles_tito_tokenizers import TITOTokenizerType, get_tito_tokenizer

from tests.frameworks.laws.merges import Merge, Merges
from tests.frameworks.turns import SampledPrompt
from tito_io.integrations.miles import BridgeTITOTokenizer

THEIRS = {
    "qwen3": TITOTokenizerType.QWEN3,
    "qwen3.5": TITOTokenizerType.QWEN35,
    "glm4.5": TITOTokenizerType.GLM47,
    "nemotron3": TITOTokenizerType.NEMOTRON3,
    "kimi-k2": TITOTokenizerType.KIMI25,
}
"""The classes that Miles has for these families."""
ROLES: dict[str, Any] = {"allowed_append_roles": ["tool", "user"]}


class MERGES(Merges):
    """Miles."""

    raises = (ValueError, TemplateError)

    def ours(self) -> Merge:
        return partial(_merged, BridgeTITOTokenizer(self.tokenizer, stop_ids=self.stops, **ROLES))

    def theirs(self) -> Merge:
        kind = THEIRS.get(self.name, TITOTokenizerType.DEFAULT)
        return partial(_merged, get_tito_tokenizer(self.tokenizer, kind, **ROLES))


def _merged(merger: Any, case: SampledPrompt) -> list[int]:
    old = [*case.history, case.turn]
    ids: list[int] = merger.merge_tokens(old, [*old, *case.new], case.ids, case.tools)
    return ids
