"""tito's merges beside verl's own, which has code for six of these families."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import pytest
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder

from tests.frameworks.turns import SampledPrompt, sampled_prompts, stop_ids, swallowed, without_ids
from tests.frameworks.verl.merges import MERGES, MODEL_TYPES, merge
from tests.model_folders import FAMILIES, NAMES, needs_families

FAMILIES_OF_PAGE = sorted(MODEL_TYPES.keys() - {"phi3"})
"""Phi-3 has Phi-4's template."""
KNOWN_TO_VERL = {"deepseek-v3", "glm4.5", "gpt-oss", "qwen2.5", "qwen3", "qwen3.5"}
TABLE = {
    # known to verl, cut: right by tito, right by verl, all
    (True, False): (35, 35, 35),
    (True, True): (35, 7, 35),
    (False, False): (35, 25, 41),
    (False, True): (34, 0, 39),
}

pytestmark = needs_families


def merges(name: str) -> MERGES:
    return MERGES(name, AutoTokenizer.from_pretrained(FAMILIES / name), stop_ids(name))


def cases(given: MERGES, *change: Any) -> list[SampledPrompt]:
    return list(sampled_prompts(given.tokenizer, given.stops, *change))


def test_the_table_of_the_page_holds() -> None:
    tito, own, all_cases = Counter[Any](), Counter[Any](), Counter[Any]()
    for name in FAMILIES_OF_PAGE:
        given = merges(name)
        ours = given.ours()
        assert (type(given.own()) is not ContinuousTokenBuilder) == (name in KNOWN_TO_VERL)
        for case in cases(given):
            cell = (name in KNOWN_TO_VERL, case.cut)
            all_cases[cell] += 1
            tito[cell] += not swallowed(name, case.case) and ours(case) == case.expected
            own[cell] += given.rights([case])
    assert {cell: (tito[cell], own[cell], all_cases[cell]) for cell in all_cases} == TABLE


@pytest.mark.parametrize("name", FAMILIES_OF_PAGE)
def test_turns_as_verls_parsers_make_them_are_merged_likewise(name: str) -> None:
    """Calls and results have no ids, and the content has the text of the stop."""
    given = merges(name)
    ours = given.ours()
    for one in cases(given, without_ids):
        if not swallowed(name, one.case):
            content = one.turn["content"] + ("" if one.cut else given.tokenizer.decode(one.ids[-1:]))
            turn = attrs.evolve(one, turn={**one.turn, "content": content})
            assert ours(turn) == one.expected, one


@pytest.mark.parametrize("name", sorted(KNOWN_TO_VERL))
def test_whole_turns_have_verls_own_record(name: str) -> None:
    given = merges(name)
    builder, theirs = given.builder(), given.own()
    whole = [one for one in cases(given) if not one.cut]
    assert whole
    for one in whole:
        tito, own = merge(builder, one), merge(theirs, one)
        if own.removed_prefix_token_count:  # GLM's stop opens the next message; verl trains on it no more
            assert tito.removed_prefix_token_count == 0
            assert own.appended_token_count == tito.appended_token_count + 1
        else:
            assert tito == own


def test_there_are_families() -> None:
    assert set(NAMES) >= MODEL_TYPES.keys()
