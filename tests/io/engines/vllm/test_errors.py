"""Which error an engine's refusal becomes, and that no error repeats the conversation."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.vllm.vllm_server import PROMPT, mocked, refused
from tito_core import TemplateRefused
from tito_io.engines.errors import fault
from tito_io.engines.protocol import (
    AuthenticationError,
    EngineAnswer,
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

OVERLONG: dict[str, tuple[str, str | None]] = {
    "by messages": (
        """This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049
        input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the
        input prompt. (parameter=input_tokens, value=2049)""",
        "input_tokens",
    ),
    "in characters": (
        """This model's maximum context length is 2048 tokens. However, your prompt contains 90000 characters
        (more than 81920 characters, which is the upper bound for 2048 input tokens).""",
        None,
    ),
    "by ids on the chat route": (
        "Input length (3000) exceeds model's maximum context length (2048).",
        None,
    ),
    "by ids on the generate route": (
        """The decoder prompt (length 2100) is longer than the maximum model length of 2048. Make sure that
        `max_model_len` is no smaller than the number of text tokens.""",
        None,
    ),
    "with one more to sample": (
        """The decoder prompt (length 2048) plus the number of requested output tokens (at least 1) is longer
        than the maximum model length of 2048. Make sure that `max_model_len` is no smaller than that.""",
        None,
    ),
    "just full": (
        "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
        "max_tokens",
    ),
    "asked for more than the context": (
        """max_tokens=9000 cannot be greater than max_model_len=2048. Please request fewer output tokens.
        (parameter=max_tokens, value=9000)""",
        "max_tokens",
    ),
    "0.17": (
        """'max_tokens' or 'max_completion_tokens' is too large: 2048. This model's maximum context length is
        2048 tokens and your request has 30 input tokens (2048 > 2048 - 30).""",
        None,
    ),
    "0.10": (
        """This model's maximum context length is 2048 tokens. However, you requested 2100 tokens (2000 in the
        messages, 100 in the completion). Please reduce the length of the messages or completion.""",
        None,
    ),
    "another engine's": (
        "The input (3000 tokens) is longer than the model's context length (2048 tokens).",
        None,
    ),
    "a third engine's": (
        "the request exceeds the available context size, try increasing it",
        None,
    ),
}


def overlong(wording: str) -> tuple[str, str | None]:
    """Return a wording on one line, and the parameter that it names."""
    message, param = OVERLONG[wording]
    return " ".join(message.split()), param


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("wording", OVERLONG)
async def test_every_wording_of_a_full_context_is_known(wording: str, status: int) -> None:
    message, param = overlong(wording)
    engine, _ = mocked({CHAT: refused(message, status, param=param)})
    with pytest.raises(OverlongError, match="shorten it") as caught:
        await engine.from_messages(HELLO, Rendering(), Sampling(max_tokens=9))
    assert caught.value.answer is not None
    assert caught.value.answer.status == status


@pytest.mark.parametrize("body", [{"message": "{}", "type": "x"}, {"error": "{}"}, {"detail": "{}"}])
def test_it_is_known_in_every_envelope(body: dict[str, str]) -> None:
    message = overlong("by ids on the chat route")[0]
    filled = {key: value.format(message) for key, value in body.items()}
    assert type(fault("POST http://h/", EngineAnswer(400, filled))) is OverlongError


async def test_it_is_known_in_an_answer_that_claims_success() -> None:
    inner = {"message": overlong("by ids on the chat route")[0], "code": 400}
    engine, _ = mocked({COMPLETIONS: httpx2.Response(200, json={"error": inner})})
    with pytest.raises(OverlongError):
        await engine.from_ids(PROMPT, Sampling())


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
