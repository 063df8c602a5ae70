"""Over real families, the next prompt is the ids so far and what the template writes, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.laws.adapter import adapters
from tests.frameworks.turns import sampled_prompts, stop_ids, swallowed
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_io.integrations.next_prompts import RefusedError


@needs_families
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", adapters("merges", "MERGES"))
def test_every_prompt_is_right_or_refused_for_a_reason(kind: Any, name: str) -> None:
    tokenizer: Any = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(FAMILIES / name)
    merges = kind(name, tokenizer, stop_ids(name))
    try:
        ours = merges.ours()
    except merges.raises:
        pytest.skip("the framework does not take the template")
    cases = [one for one in sampled_prompts(tokenizer, merges.stops) if merges.takes(one)]
    refused = [one for one in cases if swallowed(name, one.case)]
    for case in refused:
        with pytest.raises(RefusedError, match="SWALLOWED"):
            ours(case)
    right = [case for case in cases if case not in refused]
    for case in right:
        assert ours(case) == case.expected, case.case
    assert right or not cases
    assert len(right) + len(refused) >= merges.rights(cases)
