"""Which error SGLang's refusals become."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.sglang.sglang_server import PROMPT, complained, mocked, refused
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
from tito_io.engines.served_tokenizer import TOKENIZE
from tito_io.engines.sglang.requests import CHAT, GENERATE

pytestmark = pytest.mark.anyio

SAID = "the patient said 4711"
HELLO = [{"role": "user", "content": SAID}]

OVERLONG = (
    "The input (2100 tokens) is longer than the model's context length (2048 tokens).",
    """Input length (2047 tokens) exceeds the maximum allowed length (2042 tokens). Use a shorter input or
    enable --allow-auto-truncate.""",
    """Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a total
    of 2060 tokens: 2048 tokens from the input messages and 12 tokens for the completion. Please reduce the
    number of tokens in the input messages or the completion to fit within the limit.""",
)
UNAUTHORIZED = httpx2.Response(401, json={"error": "Unauthorized"})


@pytest.mark.parametrize("message", OVERLONG)
async def test_every_wording_of_a_full_context_is_known(message: str) -> None:
    message = " ".join(message.split())
    by_ids, _ = mocked({GENERATE: complained(message)})
    with pytest.raises(OverlongError, match="shorten it"):
        await by_ids.from_ids(PROMPT, Sampling())
    by_messages, _ = mocked({CHAT: refused(message)})
    with pytest.raises(OverlongError, match="shorten it"):
        await by_messages.from_messages(HELLO, Rendering(), Sampling(max_tokens=5))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (UNAUTHORIZED, AuthenticationError),
        (httpx2.Response(400, json={"error": "unknown field `nope`"}), RequestError),
        (complained("input_ids cannot be empty."), RequestError),
        (complained("out of memory", 500), ServerError),
        (httpx2.Response(503, text="Service Unavailable"), ServerError),
    ],
)
async def test_a_refusal_is_an_error_of_its_kind(answer: httpx2.Response, kind: type[EngineError]) -> None:
    engine, _ = mocked({GENERATE: answer}, vocab_size=1000)
    with pytest.raises(kind) as caught:
        await engine.from_ids(PROMPT, Sampling())
    assert SAID not in str(caught.value)


async def test_a_key_is_asked_for_whatever_is_asked_first() -> None:
    engine, _ = mocked(dict.fromkeys(("/v1/models", "/server_info", "probe"), UNAUTHORIZED))
    for asking in (
        engine.limits(),
        engine.facts(),
        engine.render(HELLO, Rendering(), add_generation_prompt=True),
    ):
        with pytest.raises(AuthenticationError):
            await asking


async def rendered(answer: httpx2.Response) -> Any:
    """Return what comes of a rendering."""
    engine, _ = mocked({TOKENIZE: answer})
    return await engine.render(HELLO, Rendering(), add_generation_prompt=True)


async def test_what_a_template_raises_is_its_refusal() -> None:
    with pytest.raises(TemplateRefused, match="A system message comes first"):
        await rendered(refused("A system message comes first or not at all."))


@pytest.mark.parametrize(
    "answer",
    [
        refused("Messages cannot be empty."),
        refused("Assistant tool call function.arguments must be valid JSON."),
        refused("Request-supplied chat_template is not allowed. Start with --trust-request-chat-template."),
        refused("Model only supports text input; received unsupported content type 'image_url'."),
        refused("1 validation error: {'loc': ('body', 'tools')}", kind="Bad Request"),
        refused("Chat template tokenization requires a template manager."),
        refused(""),
        httpx2.Response(404, json={"detail": "Not Found"}),
    ],
)
async def test_what_the_server_refuses_itself_is_none(answer: httpx2.Response) -> None:
    with pytest.raises(RequestError):
        await rendered(answer)


async def test_an_outage_is_no_refusal() -> None:
    failed = refused("Internal server error during tokenization: x", 500, "InternalServerError")
    with pytest.raises(ServerError):
        await rendered(failed)
