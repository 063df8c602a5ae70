"""Which error an engine's refusal becomes, and that no error repeats the conversation."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.vllm.vllm_server import PROMPT, mocked, refused
from tito_core import TemplateRefused
from tito_io.engines.protocol import (
    AuthenticationError,
    EngineError,
    OverlongError,
    Rendering,
    RequestError,
    Sampling,
    ServerError,
)
from tito_io.engines.vllm import CHAT, COMPLETIONS

pytestmark = pytest.mark.anyio

SAID = "the patient said 4711"
HELLO = [{"role": "user", "content": SAID}]


async def test_a_conversation_about_full_contexts_is_none() -> None:
    told = "1 validation error:\n  {'loc': 'body.messages', 'input': 'maximum context length'}"
    engine, _ = mocked({CHAT: refused(told, kind="Bad Request", param="body.messages")})
    with pytest.raises(RequestError):
        await engine.from_messages(HELLO, Rendering(), Sampling())


@pytest.mark.parametrize(
    ("response", "kind", "told"),
    [
        (httpx2.Response(401, json={"error": "Unauthorized"}), AuthenticationError, "api_key"),
        (refused("no", 403, "PermissionDeniedError"), AuthenticationError, "api_key"),
        (
            refused("The model `n` does not exist.", 404, "NotFoundError", "model"),
            RequestError,
            "model `n` does not",
        ),
        (httpx2.Response(404, json={"detail": "Not Found"}), RequestError, "no such model or route"),
        (refused("Token id 4101 is out of vocabulary"), RequestError, "Token id 4101 is out of vocabulary"),
        (
            refused("top_p must be in (0, 1], got 7.0.", param="top_p"),
            RequestError,
            r"top_p must be in \(0, 1\], got 7.0",
        ),
        (httpx2.Response(429, json={}), RequestError, "too much to do"),
        (httpx2.Response(408, content=b""), RequestError, "in time"),
        (httpx2.Response(302, headers={"location": "/login"}), RequestError, "base_url"),
        (httpx2.Response(418, text="<html>"), RequestError, "refuses"),
        (refused("boom", 500, "InternalServerError"), ServerError, "log"),
        (refused("sleeping", 503, "ServiceUnavailableError"), ServerError, "log"),
        (httpx2.Response(502, text="<html>Bad Gateway</html>"), ServerError, "log"),
        (httpx2.Response(200, json={"error": {"message": "boom"}}), ServerError, "log"),
        (httpx2.Response(200, json={"error": {"message": "boom", "code": 429}}), RequestError, "too much"),
    ],
)
async def test_a_refusal_is_the_error_that_it_amounts_to(
    response: httpx2.Response, kind: type[EngineError], told: str
) -> None:
    engine, _ = mocked({COMPLETIONS: response})
    with pytest.raises(kind, match=f"^POST http://mock:8000/v1/completions answered .*{told}") as caught:
        await engine.from_ids(PROMPT, Sampling())
    assert type(caught.value) is kind
    assert caught.value.answer is not None


@pytest.mark.parametrize("kind", ["BadRequestError", "Bad Request"])
@pytest.mark.parametrize("param", [None, "messages", SAID])
async def test_no_error_repeats_the_conversation(kind: str, param: str | None) -> None:
    engine, _ = mocked({CHAT: refused(f"what is {SAID!r}?", kind=kind, param=param)})
    with pytest.raises(RequestError) as caught:
        await engine.from_messages(HELLO, Rendering(), Sampling())
    assert SAID not in str(caught.value)
    assert caught.value.answer is not None
    assert SAID in str(caught.value.answer.body), "it is kept for whoever must look into it"
    assert SAID not in repr(caught.value.answer)


# A template's refusal is one only where nothing else can be meant.


@pytest.mark.parametrize(
    "reason",
    [
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "'dict object' has no attribute 'content'",
        'can only concatenate str (not "NoneType") to str',
        "Cannot put tools in the first user message when there's no first user message!",
    ],
)
async def test_a_templates_refusal_is_told_apart(reason: str) -> None:
    engine, _ = mocked({"/tokenize": refused(reason)})
    with pytest.raises(TemplateRefused) as caught:
        await engine.render(HELLO, Rendering(), add_generation_prompt=True)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (refused("boom", 500, "InternalServerError"), ServerError),
        (refused("sleeping", 503, "ServiceUnavailableError"), ServerError),
        (refused("The model `n` does not exist.", 404, "NotFoundError", "model"), RequestError),
        (refused("1 validation error", 400, "Bad Request", "body.messages"), RequestError),
        (refused("Cannot set both", 400, "BadRequestError", "add_generation_prompt"), RequestError),
        (refused("As of transformers v4.44, default chat template is no longer allowed"), RequestError),
        (
            refused("Chat template is passed with request, but --trust-request-chat-template is not set."),
            RequestError,
        ),
        (refused("Found unexpected chat template kwargs from request: {'tokenize'}"), RequestError),
        (refused("Cannot apply chat template to an empty conversation."), RequestError),
        (refused("At most 0 image(s) may be provided in one prompt."), RequestError),
        (refused("too long", 400, "BadRequestError", "input_tokens"), OverlongError),
        (refused("", 400, "BadRequestError"), RequestError),
        (httpx2.Response(400, text="<html>400 Bad Request</html>"), RequestError),
        (httpx2.Response(400, json={"error": "no"}), RequestError),
        (httpx2.Response(400, json={"message": "no", "type": "invalid_request_error"}), RequestError),
        (httpx2.Response(401, json={"error": "Unauthorized"}), AuthenticationError),
        (httpx2.Response(422, json={"detail": [{"loc": ["body"]}]}), RequestError),
        (httpx2.Response(429, json={}), RequestError),
        (httpx2.Response(504, text=""), ServerError),
    ],
)
async def test_no_outage_passes_for_a_templates_refusal(
    response: httpx2.Response, kind: type[EngineError]
) -> None:
    engine, _ = mocked({"/tokenize": response})
    with pytest.raises(EngineError) as caught:
        await engine.render(HELLO, Rendering(), add_generation_prompt=True)
    assert type(caught.value) is kind


async def test_a_refusal_to_sample_is_no_templates_refusal() -> None:
    engine, _ = mocked({CHAT: refused("Conversation roles must alternate")})
    with pytest.raises(RequestError):
        await engine.from_messages(HELLO, Rendering(), Sampling())


@pytest.mark.parametrize("tokens", [None, "1 2", [1.5], [-1], [True]])
async def test_a_rendering_holds_ids(tokens: Any) -> None:
    engine, _ = mocked({"/tokenize": {"tokens": tokens, "count": 2}})
    with pytest.raises(EngineError, match="`tokens`"):
        await engine.render(HELLO, Rendering(), add_generation_prompt=True)
