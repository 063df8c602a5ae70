"""A `sglang.Engine`: tuples, and chunks that repeat what came before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.io.engines.scripted import PROMPT, Heard, spelled
from tito_io.engines.protocol import (
    AbortedError,
    InvalidReplyError,
    OverlongError,
    RequestError,
    Sampling,
    UnsupportedError,
)

from .fakes import CONTEXT, Sampled, TokenizerManager, made

pytestmark = pytest.mark.anyio
SHORT = Sampling(max_tokens=9)
SEEDED = SimpleNamespace(enable_deterministic_inference=True)


@pytest.mark.parametrize("incremental", [False, True])
async def test_an_aborted_turn_keeps_each_id_once(incremental: bool) -> None:
    manager = TokenizerManager(incremental_streaming_output=incremental)
    sampled = Sampled(ids=spelled("Ye"), finish_reason=None)
    engine, _ = made("sglang-engine", sampled, tokenizer_manager=manager, repeats_last=True)
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, SHORT, watch=Heard())
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == tuple(sampled.ids)
    assert caught.value.partial.logprobs == tuple(sampled.values)


async def test_every_parameter_is_stated() -> None:
    """SGLang's own default is 128 ids (sglang/srt/sampling/sampling_params.py:149)."""
    engine, fake = made("sglang-engine", server_args=SEEDED)
    extra = {"top_p": 0.5, "ignore_eos": True}
    await engine.from_ids(PROMPT, Sampling(temperature=0.3, seed=4, stop=("x",), stop_ids=(9,), extra=extra))
    assert (await engine.from_ids(PROMPT, Sampling())).usage.cached_tokens == 2
    first, second = (one.given for one in fake.seen)
    always = {"max_new_tokens": CONTEXT - len(PROMPT), "n": 1, "skip_special_tokens": False}
    given = {"temperature": 0.3, "sampling_seed": 4, "stop": ["x"], "stop_token_ids": [9]}
    assert first == {**always, **given, **extra}
    assert second == always


async def test_a_seed_that_changes_nothing_is_refused() -> None:
    engine, fake = made("sglang-engine")
    with pytest.raises(UnsupportedError, match="enable_deterministic_inference"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=9, seed=3))
    assert not fake.seen


async def test_the_longest_prompt_is_shorter_than_the_context() -> None:
    engine, _ = made("sglang-engine")
    with pytest.raises(OverlongError, match=f"takes {CONTEXT - 7}"):
        await engine.from_ids([1] * (CONTEXT - 6), Sampling(max_tokens=1))


def cut(chunk: Any) -> None:
    """Report a shorter prompt: with `allow_auto_truncate` the object cuts it (tokenizer_manager.py:1339)."""
    chunk["meta_info"]["prompt_tokens"] -= 1


def shifted(chunk: Any) -> None:
    values = chunk["meta_info"]["output_token_logprobs"]
    values[:] = [(value, index + 1, None) for value, index, _ in values]


def refused(chunk: Any) -> None:
    reason = {"type": "abort", "status_code": 400, "message": "Input length (9) is secret", "err_type": "Bad"}
    chunk["meta_info"]["finish_reason"] = reason


@pytest.mark.parametrize(
    ("change", "problem", "text"),
    [
        (cut, InvalidReplyError, f"{len(PROMPT) - 1} counted prompt ids for {len(PROMPT)} prompt ids"),
        (shifted, InvalidReplyError, "belong to other ids"),
        (refused, RequestError, "400"),
    ],
)
async def test_chunks_that_do_not_hold_together_are_rejected(
    change: Any, problem: type[Exception], text: str
) -> None:
    with pytest.raises(problem, match=text) as caught:
        await made("sglang-engine", change=change)[0].from_ids(PROMPT, SHORT)
    assert "secret" not in str(caught.value)
