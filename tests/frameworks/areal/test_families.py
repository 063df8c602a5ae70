"""Real families: the next prompt is what the template writes, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from areal.api.io_struct import ModelResponse
from areal.experimental.openai import client
from areal.experimental.openai.types import InteractionWithTokenLogpReward
from jinja2.exceptions import TemplateError
from transformers import AutoTokenizer

from tests.frameworks.turns import SampledPrompt, sampled_prompts, stop_ids
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_core.seams.seam import common_prefix
from tito_io.integrations.areal import SEAM, ConcatenatedPrompts
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.shared_prompts import SharedPrompts

pytestmark = needs_families


def parent(tokenizer: Any, case: SampledPrompt) -> InteractionWithTokenLogpReward:
    """Return the interaction that a case continues."""
    prompt = tokenizer.apply_chat_template(
        case.history, add_generation_prompt=True, tools=case.tools, return_dict=False
    )
    start = common_prefix(prompt, case.ids)
    response = ModelResponse(
        input_tokens=case.ids[:start],
        output_tokens=case.ids[start:],
        stop_reason="length" if case.cut else "stop",
        tokenizer=tokenizer,
    )
    return InteractionWithTokenLogpReward(
        model_response=response,
        messages=[dict(message) for message in case.history],
        output_message_list=[dict(case.turn)],
        chat_template_type="concat",
    )


def prompt_of(concatenate: Any, tokenizer: Any, case: SampledPrompt) -> list[int] | None:
    """Return the next prompt, None where there is an error."""
    new = [dict(message) for message in case.new]
    try:
        ids: list[int] = concatenate(new, parent(tokenizer, case), tokenizer, tools=case.tools)
    except (RefusedError, RuntimeError, ValueError, TemplateError):
        return None
    return ids


@pytest.mark.parametrize("name", NAMES)
def test_prompts_are_what_the_template_writes(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FAMILIES / name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    ours = ConcatenatedPrompts(SharedPrompts(stop_ids=stop_ids(name)))
    own = getattr(client, SEAM)
    right = refused = theirs = 0
    for case in sampled_prompts(tokenizer, stop_ids(name)):
        found = prompt_of(ours, tokenizer, case)
        assert found in (None, case.expected), case.case
        right += found is not None
        refused += found is None
        theirs += prompt_of(own, tokenizer, case) == case.expected
    assert right > 0
    assert right + refused >= theirs  # phi4 drops tool results: no prompt with them is right
