"""Ids in, ids out: each sampled id comes with the ids that could have been sampled, and a value over them."""

from __future__ import annotations

import math
from typing import Any

import anyio
import httpx2
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_io.embedded import SampledId, app, family
from tito_io.embedded.support import Truncation, support

PROMPT = family().ids([{"role": "user", "content": "Is it raining?"}], add_generation_prompt=True)
ROUTE = "/inference/v1/generate"


def asked(body: dict[str, Any], *, masks: bool = True, **beside: Any) -> httpx2.Response:
    """Return the answer to a request with these sampling parameters."""

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(app(seed=3, sampling_masks=masks))
        async with httpx2.AsyncClient(transport=transport, base_url="http://embedded") as client:
            return await client.post(ROUTE, json={"token_ids": PROMPT, "sampling_params": body, **beside})

    return anyio.run(ask)


def events(answer: httpx2.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    return [orjson.loads(line) for line in lines[:-1]]


@given(
    st.integers(0, 1999),
    st.lists(st.integers(0, 1999), max_size=4),
    st.floats(-9, -0.001),
    st.integers(1, 40),
    st.floats(0.05, 1),
    st.sampled_from([0.0, 0.01, 0.5]),
)
def test_a_support_has_the_sampled_id_and_sums_to_one(
    chosen: int, before: list[int], value: float, top_k: int, top_p: float, min_p: float
) -> None:
    kept = support(SampledId(chosen, value, tuple(before), ""), Truncation(top_k, top_p, min_p))
    assert chosen in kept
    assert 1 <= len(kept) <= top_k
    assert sum(map(math.exp, kept.values())) == pytest.approx(1, abs=1e-5)
    wider = support(SampledId(chosen, value, tuple(before), ""), Truncation(top_k, 1.0))
    assert len(kept) <= len(wider)


@pytest.mark.parametrize("mode", ["tokens", "text"])
def test_each_id_has_its_mask_and_a_stream_adds_up_to_the_answer(mode: str) -> None:
    body = {"max_tokens": 40, "top_p": 0.9, "seed": 1, "logprobs": 0, "n": 2}
    whole = asked(body, output_mode=mode).json()
    streamed = events(asked(body, output_mode=mode, stream=True, stream_options={"include_usage": True}))
    assert streamed[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    for choice in whole["choices"]:
        own = [one for event in streamed for one in event["choices"] if one["index"] == choice["index"]]
        for name in ("token_ids", "sampling_mask"):
            assert [one for piece in own for one in piece[name]] == choice[name]
        assert [e for piece in own for e in piece["logprobs"]["content"]] == choice["logprobs"]["content"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        for index, kept in zip(choice["token_ids"], choice["sampling_mask"], strict=True):
            assert index in kept
        assert {len(kept) for kept in choice["sampling_mask"]} > {1}


def test_the_ids_are_those_of_the_other_routes() -> None:
    async def completed() -> Any:
        transport = httpx2.ASGITransport(app(seed=3))
        async with httpx2.AsyncClient(transport=transport, base_url="http://embedded") as client:
            body = {"prompt": PROMPT, "max_tokens": 40, "seed": 1, "return_token_ids": True}
            return (await client.post("/v1/completions", json=body)).json()

    body = {"max_tokens": 40, "seed": 1}
    assert asked(body).json()["choices"][0]["token_ids"] == anyio.run(completed)["choices"][0]["token_ids"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"temperature": 0}, "sampling distribution replay requires temperature > 0"),
        ({"top_k": 0}, "sampling distribution replay requires top_k > 0"),
        ({"top_k": -1}, "sampling distribution replay requires top_k > 0"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
    ],
)
def test_what_vllm_refuses_is_refused(body: dict[str, Any], words: str) -> None:
    answer = asked(body)
    assert (answer.status_code, words in answer.text) == (400, True)


@pytest.mark.parametrize(
    "beside", [{"output_mode": "derender"}, {"content_parts": [{}]}, {"token_ids": []}, {"model": "x"}]
)
def test_what_a_sampler_of_words_cannot_do_is_refused(beside: dict[str, Any]) -> None:
    assert asked({"max_tokens": 3}, **beside).status_code in (400, 404)


def test_without_masks_the_route_is_closed() -> None:
    assert asked({}, masks=False).status_code == 403
