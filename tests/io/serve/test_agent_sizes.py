"""The engine of `tito serve` without a flag takes requests as long as those of agent programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.io.serve.gateway import CHAT, talking
from tito_io.embedded import MODEL, family
from tito_io.engines.protocol import Rendering, Sampling
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.serve.gateway import build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]
PROSE = "\n\n".join(one.read_text() for one in sorted((ROOT / "tito_io").rglob("*.py")))
SYSTEM = PROSE[:100_000]
TOOLS = [
    {
        "name": f"tool_{number}",
        "description": PROSE[100_000 + 3_000 * number :][:2_700],
        "parameters": {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": f"The {name} to look at."}
                for name in ("path", "query")
            },
        },
    }
    for number in range(20)
]
"""60 KB, as Claude Code and Qwen Code declare."""
HELLO = "Read the notes in this folder."
REQUESTS: dict[str, tuple[str, Any]] = {
    "chat": (
        CHAT,
        {
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": HELLO}],
            "tools": [{"type": "function", "function": one} for one in TOOLS],
        },
    ),
    "responses": (
        "/v1/responses",
        {"instructions": SYSTEM, "input": HELLO, "tools": [{"type": "function", **one} for one in TOOLS]},
    ),
    "messages": (
        "/v1/messages",
        {
            "system": SYSTEM,
            "max_tokens": 32_000,
            "messages": [{"role": "user", "content": HELLO}],
            "tools": [
                {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
                for one in TOOLS
            ],
        },
    ),
    "google": (
        "/v1beta/models/m:generateContent",
        {
            "systemInstruction": {"parts": [{"text": SYSTEM}]},
            "contents": [{"role": "user", "parts": [{"text": HELLO}]}],
            "tools": [{"functionDeclarations": TOOLS}],
        },
    ),
}


@pytest.mark.parametrize("api", REQUESTS)
async def test_a_request_of_an_agent_is_answered_and_its_next_turn_goes_by_ids(api: str) -> None:
    path, body = REQUESTS[api]
    engine = make_engine("embedded", EngineOptions(for_agents=True))
    async with talking(build_gateway(engine, MemoryStore(), model=MODEL, family=family())) as talk:
        answer = await talk.post(body, path)
        assert answer.status_code == 200, answer.text
        (first,) = await talk.commits()
        prompt = [*first.step.messages, {"role": "user", "content": "Go on."}]
        tools = REQUESTS["chat"][1]["tools"]
        await talk.chat(prompt, tools=tools)
        second = (await talk.commits())[-1]
    assert len(first.step.prompt_ids) > 50_000
    assert second.origin.route == "TITO"


@pytest.mark.whole
async def test_turns_for_agents_say_something_and_end() -> None:
    """Qwen Code gives up at an empty turn, and Codex at one that a limit has cut."""
    for agents in (True, False):
        engine = make_engine("embedded", EngineOptions(for_agents=agents))
        prompts = [[{"role": "user", "content": f"Question {number}"}] for number in range(60)]
        replies = [(await engine.from_messages(one, Rendering(), Sampling())) for one in prompts]
        unfit = [one for one in replies if one.truncated or len(one.completion_ids) == 1]
        assert bool(unfit) is not agents
