"""Which error SGLang's refusals become."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.sglang.sglang_server import mocked, refused
from tito_core import TemplateRefused
from tito_io.engines.protocol import (
    AuthenticationError,
    Rendering,
    RequestError,
    ServerError,
)
from tito_io.engines.served_tokenizer import TOKENIZE

pytestmark = pytest.mark.anyio

SAID = "the patient said 4711"
HELLO = [{"role": "user", "content": SAID}]

UNAUTHORIZED = httpx2.Response(401, json={"error": "Unauthorized"})


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
