"""Log-probabilities by a pass over exact ids, or none; answers as vLLM 0.32.0 and SGLang 0.5.23 gave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.io.engines.aborting_engine import AbortingEngine
from tests.io.engines.recorded_images import medium
from tito_core import Ids, InputError
from tito_io.client.token_client import TokenClient
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.protocol import (
    EngineError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Sampling,
    ServerError,
    UnreachableError,
    UnsupportedError,
)
from tito_io.engines.registry import embedded
from tito_io.engines.scores import LogprobsFrom, ScoredTurns, score
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM

pytestmark = pytest.mark.anyio
IDS = [30, 31, 32, 33, 34, 35]
VALUES = [
    -14.190664291381836,
    -10.802850723266602,
    -9.380163192749023,
    -11.853485107421875,
    -8.447233200073242,
]
VLLM_ANSWER: dict[str, Any] = {
    "id": "cmpl-9ac08e3b3b4150c3",
    "object": "text_completion",
    "model": "tiny",
    "choices": [
        {
            "index": 0,
            "text": "or",
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
            "token_ids": [270],
            "prompt_logprobs": [
                None,
                *(
                    {str(index): {"logprob": value, "rank": 9, "decoded_token": "@"}}
                    for index, value in zip(IDS[1:], VALUES, strict=True)
                ),
            ],
            "prompt_token_ids": IDS,
            "routed_experts": None,
        }
    ],
    "usage": {"prompt_tokens": 6, "total_tokens": 7, "completion_tokens": 1},
}
SGLANG_ANSWER: dict[str, Any] = {
    "text": "",
    "output_ids": [],
    "meta_info": {
        "id": "ddc49152836e445ca4c8633507f51b07",
        "finish_reason": {"type": "length", "length": 0},
        "prompt_tokens": 6,
        "weight_version": "v2",
        "input_token_logprobs": [
            [None, 32, None],
            [-9.380163192749023, 33, None],
            [-11.853486061096191, 34, None],
            [-8.447235107421875, 35, None],
        ],
        "output_token_logprobs": [],
        "completion_tokens": 0,
        "cached_tokens": 2,
    },
}
CARD = {"data": [{"id": "tiny", "object": "model", "root": "tiny", "parent": None, "max_model_len": 8}]}


def answering(answer: Any, asked: list[Any]) -> httpx2.MockTransport:
    """Answer the scoring request; a list of models is all else that is asked for."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json=CARD)
        if request.method == "GET":
            return httpx2.Response(200, json={"max_req_input_len": 7, "version": "0.5.23"})
        asked.append((request.url.path, json.loads(request.content)))
        return httpx2.Response(200, json=answer)

    return httpx2.MockTransport(handle)


Make = Callable[[Any, list[Any]], VLLM | SGLang]


def vllm(answer: Any, asked: list[Any]) -> VLLM:
    return VLLM("http://vllm", transport=answering(answer, asked), vocab_size=4105)


def sglang(answer: Any, asked: list[Any]) -> SGLang:
    return SGLang("http://sglang", transport=answering(answer, asked), vocab_size=4105)


async def test_vllm_scores_a_prompt_and_the_id_that_it_samples_is_dropped() -> None:
    asked: list[Any] = []
    assert list(await score(vllm(VLLM_ANSWER, asked), IDS, 1)) == VALUES
    assert list(await score(vllm(VLLM_ANSWER, asked), IDS, 4)) == VALUES[3:]
    path, body = asked[0]
    assert path == "/v1/completions"
    assert (body["prompt"], body["prompt_logprobs"], body["max_tokens"]) == (IDS, 0, 1)
    assert await score(vllm(VLLM_ANSWER, asked), IDS, 6) == ()
    assert len(asked) == 2


async def test_sglang_scores_from_a_position_on_and_samples_nothing() -> None:
    asked: list[Any] = []
    assert await score(sglang(SGLANG_ANSWER, asked), IDS, 3) == (
        -9.380163192749023,
        -11.853486061096191,
        -8.447235107421875,
    )
    path, body = asked[0]
    assert (path, body["logprob_start_len"], body["sampling_params"]["max_new_tokens"]) == ("/generate", 2, 0)


@pytest.mark.parametrize("make", [vllm, sglang])
async def test_scores_of_other_ids_are_an_error(make: Make) -> None:
    whole = VLLM_ANSWER if make is vllm else SGLANG_ANSWER
    text = json.dumps(whole).replace('"33"', '"36"').replace(", 33, null]", ", 36, null]")
    with pytest.raises(InvalidReplyError):
        await score(make(json.loads(text), []), IDS, 3)
    with pytest.raises(OverlongError):
        await score(make(whole, []), [1] * 8, 3)


async def test_sglang_names_the_last_id_of_the_vocabulary_zero() -> None:
    """By `scheduler_components/logprob_result_processor.py` of 0.5.23; the value is that of the id."""
    answer = json.loads(json.dumps(SGLANG_ANSWER).replace(", 35, null]", ", 0, null]"))
    engine = sglang(answer, [])
    with pytest.raises(InvalidReplyError, match="belong to other ids"):
        await score(engine, IDS, 3)
    engine.vocab_size = 36
    assert (await score(engine, IDS, 3))[-1] == -8.447235107421875


async def test_no_ids_have_no_scores() -> None:
    with pytest.raises(InputError, match="ids is empty: give a prompt"):
        await score(vllm(VLLM_ANSWER, []), [], 1)


async def test_a_start_must_have_an_id_before_it() -> None:
    for start in (0, 7, True):
        with pytest.raises(InputError, match="give a position from 1 to 6"):
            await score(vllm(VLLM_ANSWER, []), IDS, start)


async def test_what_cannot_be_scored_or_left_out_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="computes no log-probabilities of given ids"):
        await score(Dynamo("http://h"), IDS, 3)
    engine = SGLang("http://h", route="chat", transport=answering({}, []), vocab_size=9)
    with pytest.raises(InputError, match="cannot be left out here"):
        await engine.from_ids([1], Sampling(logprobs=False))
    with pytest.raises(InputError, match="logprobs_from is 'dreams'"):
        TokenClient(AbortingEngine(), logprobs_from="dreams")
    sampler = AbortingEngine()
    scored = ScoredTurns(sampler, LogprobsFrom.SCORING)
    with pytest.raises(UnsupportedError, match="has no media"):
        await scored.from_ids_with_media([1], [medium("a", 0)], Sampling())
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    with pytest.raises(UnsupportedError, match="has no media"):  # its ids say where the image is expanded
        await scored.from_messages([{"role": "user", "content": [part]}], Rendering(), Sampling())
    assert sampler.asked == []


@pytest.mark.parametrize(("route", "watched"), [("completions", False), ("generate", True), ("chat", False)])
async def test_ids_are_the_same_without_log_probabilities(route: Any, watched: bool) -> None:
    """The embedded engine speaks vLLM's routes; each turn comes with its ids, none with log-probabilities."""
    made: list[Any] = [embedded(seed=3) for _ in range(2)]
    for engine in made:
        engine.route = route
    turns = []

    async def watch(_: Any) -> None:
        pass

    for engine, source in zip(made, ("sampling", "nowhere"), strict=True):
        client = TokenClient(engine, logprobs_from=source)
        prompt: list[Any] = [{"role": "user", "content": "Hello."}]
        sampling = {"max_tokens": 24}
        seen = watch if watched else None
        first = await client.turn([], prompt, sampling=sampling, watch=seen)
        prompt += [first.message, {"role": "user", "content": "Go on."}]
        turns.append(await client.turn([first.step], prompt, sampling=sampling, watch=seen))
    with_values, without = turns
    assert with_values.step.ids == without.step.ids
    assert with_values.step.logprobs is not None
    assert without.step.logprobs is None


async def test_a_turn_that_cannot_be_scored_is_in_the_error() -> None:
    """A turn may fill the context, of which a pass needs one more id; and the server may fail."""

    class Failing(AbortingEngine):
        error: type[EngineError] = OverlongError

        async def score(self, ids: Ids, start: int) -> tuple[float, ...]:
            raise self.error(f"no pass over {len(ids)} ids from {start} on")

    for kind in (OverlongError, ServerError, UnreachableError):
        engine = Failing()
        engine.error = kind
        with pytest.raises(kind) as raised:
            await TokenClient(engine, logprobs_from="scoring").turn([], [{"role": "user", "content": "x"}])
        assert raised.value.partial is not None
        assert raised.value.partial.completion_ids


async def test_a_scored_turn_has_the_values_of_the_pass() -> None:
    class Scoring(AbortingEngine):
        async def score(self, ids: Ids, start: int) -> tuple[float, ...]:
            return tuple(-float(index) for index in ids[start:])

    client = TokenClient(Scoring(), logprobs_from="scoring")
    done = await client.turns([], [{"role": "user", "content": "x"}], 2, sampling={"max_tokens": 3})
    assert [step.logprobs for step in done.steps] == [
        tuple(-float(index) for index in step.completion_ids) for step in done.steps
    ]
