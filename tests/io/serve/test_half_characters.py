r"""Sampled JSON may spell half of a character (`\ud83d` alone): the turn is answered and its ids are kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.engines.lmdeploy.lmdeploy_server import Server
from tests.io.engines.lmdeploy.lmdeploy_server import served as lmdeploy
from tests.io.engines.scripted import END, MODEL, Script
from tests.io.serve.gateway import talking
from tito_io.serve.gateway import build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio

SAID = '<tool_call>\n{"name": "look\\ud83d", "arguments": {"at": "\\ud83d"}}\n</tool_call>'
SAMPLED = (*MODEL.encode(SAID), END)
LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
ASKED: dict[str, dict[str, Any]] = {
    "v1/chat/completions": {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": LOOK}],
    },
    "v1/responses": {"input": "hi", "tools": [{"type": "function", **LOOK}]},
    "v1/messages": {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 99,
        "tools": [{"name": "look", "input_schema": LOOK["parameters"]}],
    },
    "v1beta/models/m:generateContent": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [LOOK]}],
    },
}


@pytest.mark.parametrize("path", ASKED)
async def test_half_a_character_in_a_call_loses_no_turn(path: str) -> None:
    engine, _ = lmdeploy(Server(script=Script(ids=SAMPLED), context=2000))
    async with talking(build_gateway(engine, MemoryStore(), model="m")) as talk:
        answer = await talk.post(ASKED[path], f"/{path}")
        assert (answer.status_code, "look\ufffd" in answer.text) == (200, True), answer.text
        (line,) = (await talk.get("/calls")).text.splitlines()
        assert str(list(SAMPLED)).replace(" ", "") in line.replace(" ", "")
