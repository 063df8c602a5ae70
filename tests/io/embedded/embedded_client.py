"""What the tests of the embedded engine share: a client, messages and a tool, sampled replies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from attrs import evolve

from tito_io.embedded import (
    TIDY,
    FaultRates,
    Generation,
    Sampler,
    SamplingSettings,
    app,
    family,
    generate,
    vocabulary,
)

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Where is the bridge today?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"enum": ["C", "F"]},
                "exact": {"type": "boolean"},
                "near": {"type": "array", "items": {"type": "number"}},
            },
            "required": ["city"],
        },
    },
}


@asynccontextmanager
async def client(**options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client of one new application."""
    transport = httpx2.ASGITransport(app=app(**options))
    async with httpx2.AsyncClient(transport=transport, base_url="http://embedded") as opened:
        yield opened


async def post(opened: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> Any:
    """Post a body that is answered, and return the answer."""
    answer = await opened.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def answered(path: str, body: dict[str, Any], **options: Any) -> Any:
    """Post a body to a new application, and return the answer."""
    async with client(**options) as opened:
        return await post(opened, path, body)


async def events(opened: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> list[Any]:
    """Post a body that is answered with a stream; return its events but for the `[DONE]` at the end."""
    answer = await opened.post(path, json={**body, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8", answer.text
    found = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert found.pop() == "[DONE]"
    return [json.loads(line) for line in found]


def prompt(question: str = "What is the weather?", *, tools: bool = True, **options: Any) -> list[int]:
    """Return the ids of a prompt with one question, with or without a tool to answer it."""
    messages = [{"role": "user", "content": question}]
    offered = [WEATHER] if tools else None
    return family().ids(messages, tools=offered, add_generation_prompt=True, **options)


LIMIT = SamplingSettings(max_tokens=256)


def replies(fault_rates: FaultRates, *, count: int = 30, tools: bool = True) -> list[Generation]:
    """Sample replies to `count` questions."""
    sampler = Sampler(fault_rates=fault_rates)
    return [generate(sampler, prompt(f"Question {one}?", tools=tools), LIMIT) for one in range(count)]


def whole(reply: Generation) -> str:
    """Return the text of all ids, the end token too."""
    return vocabulary().decode(reply.ids)


def only(**rates: float) -> FaultRates:
    """Return a tidy sampler with these fault_rates."""
    return evolve(TIDY, **rates)
