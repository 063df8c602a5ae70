"""Real families: merged ids are what the template writes, where Miles has a class and where it has none."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from miles_tito_tokenizers import TITOTokenizerType, get_tito_tokenizer
from transformers import AutoTokenizer

from tests.frameworks.turns import SampledPrompt, sampled_prompts, stop_ids
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_io.integrations.miles import BridgeTITOTokenizer, CannotMergeError

THEIRS = {
    "qwen3": TITOTokenizerType.QWEN3,
    "qwen3.5": TITOTokenizerType.QWEN35,
    "glm4.5": TITOTokenizerType.GLM47,
    "nemotron3": TITOTokenizerType.NEMOTRON3,
    "kimi-k2": TITOTokenizerType.KIMI25,
}
"""The classes that Miles has for these families."""

pytestmark = needs_families


def merged(merger: Any, case: SampledPrompt) -> list[int] | None:
    """Return the merged ids, None where they cannot be merged."""
    old = [*case.history, case.turn]
    try:
        ids: list[int] = merger.merge_tokens(old, [*old, *case.new], case.ids, case.tools)
    except (ValueError, TemplateError):
        return None
    return ids


@pytest.mark.parametrize("name", NAMES)
def test_merged_ids_are_what_the_template_writes(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FAMILIES / name)
    merger = BridgeTITOTokenizer(tokenizer, stop_ids=stop_ids(name), allowed_append_roles=["tool", "user"])
    theirs = get_tito_tokenizer(
        tokenizer, THEIRS.get(name, TITOTokenizerType.DEFAULT), allowed_append_roles=["tool", "user"]
    )
    right = wrong = refused = others = 0
    for case in sampled_prompts(tokenizer, stop_ids(name)):
        found = merged(merger, case)
        right += found == case.expected
        wrong += found not in (None, case.expected)
        refused += found is None
        others += merged(theirs, case) == case.expected
    assert wrong == 0
    assert right > 0
    assert right + refused >= others  # phi4 drops tool results: no prompt with them is right


def test_there_is_a_class_for_some_families() -> None:
    assert set(THEIRS) <= set(NAMES)
    assert issubclass(CannotMergeError, ValueError)
