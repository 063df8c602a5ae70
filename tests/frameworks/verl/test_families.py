"""tito's merges and verl's own over real model families: whole turns, and turns that were cut.

verl has code for six of these families. A merge is right if the ids so far stay, and after them stands what
the chat template writes after the turn, from its stop on.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import attrs
import pytest
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder, MergeResult
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from tests.frameworks.turns import SampledPrompt, sampled_prompts, stop_ids, without_ids
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.verl import TitoContinuousTokenBuilder

MODEL_TYPES = {
    "deepseek-v3": "deepseek_v3",
    "gemma3": "gemma3",
    "glm4.5": "glm4_moe",
    "gpt-oss": "gpt_oss",
    "kimi-k2": "kimi_k2",
    "llama3": "llama",
    "mistral-tekken": "mistral3",
    "nemotron3": "nemotron_h",
    "phi4": "phi3",
    "qwen2.5": "qwen2",
    "qwen3": "qwen3",
    "qwen3.5": "qwen3_5",
    "smollm3": "smollm3",
}
KNOWN_TO_VERL = {"deepseek-v3", "glm4.5", "gpt-oss", "qwen2.5", "qwen3", "qwen3.5"}
PHI4_REFUSED = {
    "tool",
    "tool, no text",
    "two tools",
    "tool after reasoning",
    "tool, then user",
    "second tool",
}
"""Phi-4's template writes nothing for tool results, so that a model would go on without them."""
TABLE = {
    # known to verl, cut: right by tito, right by verl, all
    (True, False): (35, 35, 35),
    (True, True): (35, 7, 35),
    (False, False): (35, 25, 41),
    (False, True): (34, 0, 39),
}

pytestmark = needs_families


@attrs.frozen
class Merge:
    """One merge by both builders; a merge that raised is None."""

    prompt: SampledPrompt
    tito: MergeResult | None
    own: MergeResult | None
    refusal: str = ""

    def right(self, who: str) -> bool:
        found = getattr(self, who)
        return found is not None and found.token_ids == self.prompt.expected


def merge(builder: Any, prompt: SampledPrompt) -> Any:
    before = [*prompt.history, prompt.turn]
    return builder.merge_context_tokens(before, [*before, *prompt.new], prompt.ids, tools=prompt.tools)


@cache
def builder_of(name: str) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(FAMILIES / name)
    return TitoContinuousTokenBuilder(tokenizer, shared=SharedPrompts(stop_ids=stop_ids(name)))


def merges(name: str) -> list[Merge]:
    builder = builder_of(name)
    own = create_continuous_token_builder(builder.tokenizer, hf_model_type=MODEL_TYPES[name])
    assert (type(own) is not ContinuousTokenBuilder) == (name in KNOWN_TO_VERL)
    return [both(builder, own, prompt) for prompt in sampled_prompts(builder.tokenizer, stop_ids(name))]


def both(builder: Any, own: Any, prompt: SampledPrompt) -> Merge:
    try:
        by_verl = merge(own, prompt)
    except Exception:  # noqa: BLE001  # templates raise what they like through verl's builders
        by_verl = None
    try:
        return Merge(prompt, merge(builder, prompt), by_verl)
    except RefusedError as error:
        return Merge(prompt, None, by_verl, error.refusal.reason.name)


@pytest.fixture(scope="module")
def all_merges() -> dict[str, list[Merge]]:
    return {name: merges(name) for name in MODEL_TYPES}


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_every_merge_is_right_or_refused_for_a_reason(all_merges: dict[str, list[Merge]], name: str) -> None:
    for one in all_merges[name]:
        refusal = "SWALLOWED" if name == "phi4" and one.prompt.case in PHI4_REFUSED else ""
        assert (one.right("tito"), one.refusal) == (not refusal, refusal), one.prompt


def test_the_table_of_the_page_holds(all_merges: dict[str, list[Merge]]) -> None:
    tito, own, cases = Counter[Any](), Counter[Any](), Counter[Any]()
    for name, some in all_merges.items():
        for one in some:
            cell = (name in KNOWN_TO_VERL, one.prompt.cut)
            cases[cell] += 1
            tito[cell] += one.right("tito")
            own[cell] += one.right("own")
    assert {cell: (tito[cell], own[cell], cases[cell]) for cell in cases} == TABLE


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_turns_as_verls_parsers_make_them_are_merged_likewise(name: str) -> None:
    """Calls and results have no ids, and the content has the text of the stop."""
    builder = builder_of(name)
    for one in sampled_prompts(builder.tokenizer, stop_ids(name), without_ids):
        if name == "phi4" and one.case in PHI4_REFUSED:
            continue
        content = one.turn["content"] + ("" if one.cut else builder.tokenizer.decode(one.ids[-1:]))
        turn = attrs.evolve(one, turn={**one.turn, "content": content})
        assert merge(builder, turn).token_ids == one.expected, one


@pytest.mark.parametrize("name", sorted(KNOWN_TO_VERL))
def test_whole_turns_have_verls_own_record(all_merges: dict[str, list[Merge]], name: str) -> None:
    whole = [one for one in all_merges[name] if not one.prompt.cut]
    assert whole
    for one in whole:
        assert one.tito is not None
        assert one.own is not None
        if one.own.removed_prefix_token_count:  # GLM's stop opens the next message; verl trains on it no more
            assert one.tito.removed_prefix_token_count == 0
            assert one.own.appended_token_count == one.tito.appended_token_count + 1
        else:
            assert one.tito == one.own


def test_there_are_families() -> None:
    assert set(NAMES) >= MODEL_TYPES.keys()
