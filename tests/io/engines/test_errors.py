"""Wordings of a full context are known in every envelope, and near ones are not taken for it."""

from __future__ import annotations

from typing import Any

import httpx2
import orjson
import pytest

from tests.io.engines.vllm.vllm_server import PROMPT, events, mocked
from tito_io.engines.errors import fault
from tito_io.engines.protocol import Delta, EngineAnswer, EngineError, OverlongError, RequestError, Sampling
from tito_io.engines.vllm import COMPLETIONS

pytestmark = pytest.mark.anyio

OVERLONG = [
    "context length exceeded",
    "Context window exceeded: 9000 of 8192",
    "prompt_too_long",
    "context_length_exceeded",
    "Your input is too long. Please shorten it.",
    "Input is too long for requested model.",
    "prompt is too long: 30 tokens > 20 maximum",
    "litellm.BadRequestError: prompt is too long: 30 tokens > 20 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "The prompt exceeds the model's context window.",
    "messages: too many total text bytes: 9000001 > 9000000",
    "Input tokens exceed the configured limit of 272000 tokens.",
    "inputs exceed the configured limit",
    "The input exceeds the configured limit.",
    "Invalid request: Your request exceeded model token limit: 131072",
    "Input length (3000 tokens) exceeds the maximum allowed length (2041 tokens).",
    "max_tokens=9000 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
    # vLLM's: of messages, in characters, of ids by its routes, of 0.17 and of 0.10
    "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input",
    "This model's maximum context length is 2048 tokens. However, your prompt contains 90000 characters",
    "Input length (3000) exceeds model's maximum context length (2048).",
    "The decoder prompt (length 2100) is longer than the maximum model length of 2048. Make sure that",
    "plus the number of requested output tokens (at least 1) is longer than the maximum model length of 20.",
    "'max_tokens' or 'max_completion_tokens' is too large: 2048. This model's maximum context length is 2048",
    "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (2000 in the",
    # SGLang's, and llama.cpp's
    "The input (3000 tokens) is longer than the model's context length (2048 tokens).",
    "Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a total",
    "the request exceeds the available context size, try increasing it",
]
CODES = ["context_length_exceeded", "prompt_too_long", "exceed_context_size_error"]
NEAR = [
    "rate limit exceeded: too many tokens per minute",
    "You exceeded your current token limit for the day",
    "The number of tools exceeds the configured limit",
    "Outputs exceed the configured limit",
    "audio input is too long: 40 s > 30 s",
    "the name of tools[0] is too long",
    "stop: the string is longer than the maximum of 32 characters",
    "`user` exceeds the maximum allowed length of 64",
    "messages: too many text parts: 101 > 100",
    "Unsupported parameter: context_length_exceeded_behavior",
    "prompt_too_long_action must be 'error' or 'truncate'",
    "context length must be a number",
    "Unknown parameter: max_model_len",
    "a timeout of 9 exceeds the limit",
]


def kind_of(body: object, status: int = 400) -> type[EngineError]:
    """Return the class of the error that an answer is."""
    return type(fault("POST http://h/", EngineAnswer(status, body)))


@pytest.mark.parametrize("message", OVERLONG)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_every_wording_is_known_in_json_and_in_text(message: str, status: int) -> None:
    envelopes: list[Any] = [
        message,
        {"error": message},
        {"error": {"message": message, "type": "invalid_request_error"}},
        {"message": message},
        {"detail": message},
        {"detail": {"message": message}},
    ]
    assert {kind_of(body, status) for body in envelopes} == {OverlongError}
    assert kind_of(message, 500) is not OverlongError


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("key", ["code", "type"])
def test_a_code_is_known_whatever_the_text_says(code: str, key: str) -> None:
    assert kind_of({"error": {"message": "no", key: code}}) is OverlongError
    assert kind_of({"message": "no", key: code}) is OverlongError
    assert kind_of({"error": {"message": "no", key: f"{code}_not"}}) is RequestError


@pytest.mark.parametrize("message", NEAR)
def test_a_near_wording_is_another_refusal(message: str) -> None:
    bodies = [message, {"error": {"message": message, "type": "invalid_request_error"}}, {"detail": message}]
    assert {kind_of(body) for body in bodies} == {RequestError}


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"loc": ["body", "messages"], "msg": "no", "input": "prompt is too long"}]},
        "messages[0]: unknown role; body: " + "x" * 2000 + ". prompt is too long",
        {"error": {"message": ["prompt is too long"]}},
        {"error": {"message": "no", "code": ["context_length_exceeded"]}},
    ],
)
def test_a_text_that_repeats_the_request_decides_nothing(body: object) -> None:
    assert kind_of(body, 422) is RequestError


async def test_it_is_known_in_an_answer_that_claims_success() -> None:
    engine, _ = mocked({COMPLETIONS: {"error": {"message": OVERLONG[0], "code": 400}}})
    with pytest.raises(OverlongError):
        await engine.from_ids(PROMPT, Sampling())


@pytest.mark.parametrize("content", [OVERLONG[0].encode(), orjson.dumps(OVERLONG[0])])
async def test_it_is_known_whatever_the_content_type(content: bytes) -> None:
    response = httpx2.Response(400, content=content, headers={"content-type": "text/plain"})
    engine, _ = mocked({COMPLETIONS: response})
    with pytest.raises(OverlongError, match="shorten it"):
        await engine.from_ids(PROMPT, Sampling())


@pytest.mark.parametrize(
    "error",
    [
        {"message": "no", "code": "context_length_exceeded"},
        {"message": "prompt is too long: 30 tokens > 20 maximum", "type": "invalid_request_error"},
    ],
)
async def test_an_event_that_names_no_status_is_known_by_its_code_or_wording(error: dict[str, Any]) -> None:
    async def watch(delta: Delta) -> None:
        raise AssertionError(f"nothing was sampled, and {delta} came")

    engine, _ = mocked({COMPLETIONS: events({"error": error})})
    with pytest.raises(OverlongError):
        await engine.from_ids(PROMPT, Sampling(), watch=watch)


async def test_the_engines_own_words_are_an_attribute_and_in_no_text() -> None:
    words = "At most 1 image(s) may be provided in one prompt, after 'a secret'."
    body = {"object": "error", "message": words, "type": "BadRequestError", "param": None, "code": 400}
    engine, _ = mocked({COMPLETIONS: httpx2.Response(400, json=body)})
    with pytest.raises(RequestError, match="its own words are in the error's `reason`") as caught:
        await engine.from_ids(PROMPT, Sampling())
    assert caught.value.reason == words
    assert "secret" not in f"{caught.value} {caught.value!r}"
    assert RequestError("no answer came").reason == ""
