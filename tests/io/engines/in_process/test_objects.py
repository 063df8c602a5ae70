"""An object of a wrong type is refused when the engine is made, and the error says what was given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.io.engines.in_process import fakes
from tito_core import InputError
from tito_io.embedded import family
from tito_io.engines.in_process import (
    MlxModel,
    SglangEngine,
    TransformersModel,
    VllmAsync,
    VllmLLM,
)

ADAPTERS = {
    VllmLLM: "a vllm.LLM",
    VllmAsync: "a vllm.AsyncLLMEngine",
    SglangEngine: "a sglang.Engine",
    TransformersModel: "a model such as AutoModelForCausalLM loads",
    MlxModel: "the model that mlx_lm.load returns first",
}


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("Qwen/Qwen3-4B", "is 'Qwen/Qwen3-4B', which has no"),
        (None, "is None, which has no"),
        (("model", "tokenizer"), "is a tuple, which has no"),
        (SimpleNamespace(), "is a types.SimpleNamespace, which has no"),
        (dict, "is the class dict: give an object of it,"),
    ],
)
def test_the_error_names_what_was_given_and_what_is_taken(adapter: Any, wrong: object, named: str) -> None:
    with pytest.raises(InputError) as caught:
        adapter(wrong, family())
    assert named in str(caught.value)
    assert ADAPTERS[adapter] in str(caught.value)


@pytest.mark.parametrize(
    ("adapter", "given", "taker"),
    [
        (VllmLLM, fakes.AsyncLLM(), "VllmAsync"),
        (VllmAsync, fakes.LLM(), "VllmLLM"),
        (SglangEngine, fakes.LLM(), "VllmLLM"),
        (VllmLLM, fakes.LLMEngine(), "VllmLLM with the vllm.LLM around it"),
    ],
)
def test_an_object_of_another_adapter_is_sent_there(adapter: Any, given: object, taker: str) -> None:
    with pytest.raises(InputError, match=rf"; this one goes into {taker}$"):
        adapter(given, family())
