"""The client that agents really use, against the embedded engine."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from attrs import evolve
from openai import AsyncOpenAI

from tito_io.embedded import MODEL, TIDY, app

from .embedded_client import WEATHER

pytestmark = pytest.mark.anyio
ASK: Any = [{"role": "user", "content": "What is the weather in Quito?"}]
IDS = {"return_token_ids": True}


def openai(**options: Any) -> AsyncOpenAI:
    """Return a client of one new application; what it does it does once."""
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app(**options)))
    return AsyncOpenAI(base_url="http://embedded/v1", api_key="none", http_client=http, max_retries=0)


async def test_a_conversation_with_a_tool() -> None:
    tools: Any = [WEATHER]
    messages: list[Any] = list(ASK)
    async with openai(fault_rates=evolve(TIDY, reasoning=1.0)) as client:
        first = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=tools, tool_choice="required", extra_body=IDS
        )
        message = first.choices[0].message
        assert message.tool_calls is not None
        messages.append(message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
        ]
        second = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=tools, extra_body=IDS
        )
    assert first.choices[0].finish_reason == "tool_calls"
    ids = [*first.model_extra["prompt_token_ids"], *first.choices[0].model_extra["token_ids"]]  # type: ignore[index]
    assert second.model_extra["prompt_token_ids"][: len(ids)] == ids  # type: ignore[index]
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == (len(ids) - 1) // 16 * 16


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio the client leaves its own generators open
async def test_a_streamed_answer() -> None:
    async with openai() as client:
        whole = await client.chat.completions.create(model=MODEL, messages=ASK, extra_body=IDS)
        stream = await client.chat.completions.create(
            model=MODEL, messages=ASK, extra_body=IDS, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    ids = [
        one
        for chunk in chunks
        for choice in chunk.choices
        for one in (choice.model_extra or {}).get("token_ids") or []
    ]
    assert ids == whole.choices[0].model_extra["token_ids"]  # type: ignore[index]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == (whole.choices[0].message.content or "")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(ids)
