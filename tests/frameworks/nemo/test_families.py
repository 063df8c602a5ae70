"""`replace_prefix_tokens` over real model families: whole turns, and turns that were cut."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.frameworks.turns import sampled_prompts, stop_ids
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_io.integrations.nemo import ServerPrompts
from tito_io.integrations.next_prompts import RefusedError

TAKEN = [name for name in NAMES if name != "phi3"]
"""Phi-3 has Phi-4's template."""
PHI4_REFUSED = {
    "tool",
    "tool, no text",
    "two tools",
    "tool after reasoning",
    "tool, then user",
    "second tool",
}
"""Phi-4's template writes nothing for tool results, so that a model would go on without them."""

pytestmark = needs_families


@pytest.mark.parametrize("name", TAKEN)
def test_every_prompt_is_right_or_refused_for_a_reason(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FAMILIES / name)
    prompts = ServerPrompts(stop_ids=stop_ids(name))
    seen = Counter[Any]()
    for one in sampled_prompts(tokenizer, stop_ids(name)):
        messages = [*one.history, one.turn, *one.new]
        refused = name == "phi4" and one.case in PHI4_REFUSED
        seen[refused] += 1
        if refused:
            with pytest.raises(RefusedError, match="SWALLOWED"):
                prompts.replace_prefix_tokens(tokenizer, one.ids, messages, tools=one.tools)
            continue
        found = prompts.replace_prefix_tokens(tokenizer, one.ids, messages, tools=one.tools)
        assert found == one.expected, one
    assert seen[False]
    assert seen[True] == (11 if name == "phi4" else 0)


def test_there_are_families() -> None:
    assert len(TAKEN) == 13
