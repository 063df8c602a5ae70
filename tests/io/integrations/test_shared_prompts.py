"""Next prompts that builders and threads share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tito_core import Extension, InputError
from tito_io.embedded import write_family
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.shared_prompts import SharedPrompts

HELLO = {"role": "user", "content": "Hello."}


def test_prompts_are_made_once_per_tokenizer_and_arguments(tokenizer: Any) -> None:
    shared = SharedPrompts(stop_ids=[7])
    one = shared.of(tokenizer, {"enable_thinking": False})
    assert shared.of(tokenizer, {"enable_thinking": False}) is one
    assert shared.of(tokenizer, {}) is not one
    assert (one.family.stop_ids, one.template_args) == ((7,), {"enable_thinking": False})


def test_threads_ask_a_new_template_once(tokenizer: Any) -> None:
    shared = SharedPrompts()
    prompts = shared.of(tokenizer, {})
    ids = [*prompts.family.ids([HELLO], add_generation_prompt=True), 57, 1517]
    asking, most = [0], [0]
    family = prompts.family
    bridge = type(family).bridge

    def watched(self: Any, **options: Any) -> Any:
        asking[0] += 1
        most[0] = max(most[0], asking[0])
        made = bridge(self, **options)
        asking[0] -= 1
        return made

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(8) as pool:
        patch.setattr(type(family), "bridge", watched)
        found = list(pool.map(lambda _: shared.extend(prompts, ids, [HELLO]), range(40)))
    assert most[0] == 1
    assert len({tuple(one.ids) for one in found if isinstance(one, Extension)}) == 1
    assert shared.built == {"ids": 40}


def test_counts_are_those_of_all_tokenizers(tokenizer: Any, tmp_path: Path) -> None:
    shared = SharedPrompts()
    for one in (tokenizer, AutoTokenizer.from_pretrained(write_family(tmp_path / "model"))):
        with pytest.raises(RefusedError, match="NOTHING_NEW"):
            shared.extend(shared.of(one, {}), [1, 2], [])
    assert (shared.refused, shared.built) == ({"NOTHING_NEW": 2}, {})


def test_a_choice_that_ends_a_sample_is_named() -> None:
    with pytest.raises(
        InputError, match="on_refusal is 'end': give 'raise' or 'rerender'; nothing here can end"
    ):
        SharedPrompts(on_refusal="end")  # type: ignore[arg-type]  # what a caller may get wrong


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"policy": "keep"}, "policy is 'keep': give a Policy, such as"),
        ({"stop_ids": []}, "stop_ids is empty: give the ids that end a turn"),
        ({"stop_ids": "abc"}, "stop_ids must be a sequence of ids, not str"),
    ],
)
def test_a_choice_is_checked_before_the_first_prompt(given: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        SharedPrompts(**given)
