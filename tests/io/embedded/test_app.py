"""The small routes, and every way in which a request is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx2
import pytest

from tests.io.serve.gateway import served
from tito_io.embedded import MODEL, app, family, vocabulary
from tito_io.extras import install

from .embedded_client import HELLO, WEATHER, answered, client, events, post

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("module", ["starlette", "orjson"])
def test_a_missing_module_is_one_clear_line(module: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; import tito_io.embedded"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    last = f"ModuleNotFoundError: {module} is missing: {install('io')}"
    assert done.stderr.splitlines()[-1] == last


async def test_the_server_tells_what_it_is() -> None:
    async with client(max_model_len=512) as opened:
        health = await opened.get("/health")
        version = await opened.get("/version")
        models = (await opened.get("/v1/models")).json()
    assert (health.status_code, health.content) == (200, b"")
    assert version.json() == {"version": "0.32.0"}
    card = models["data"][0]
    assert (card["id"], card["max_model_len"], card["object"]) == (MODEL, 512, "model")
    assert "sampler" in card["id"]


@pytest.mark.parametrize("options", [{}, {"add_generation_prompt": False}])
@pytest.mark.parametrize("tools", [None, [WEATHER]])
async def test_messages_are_tokenized_as_the_family_does(tools: Any, options: dict[str, Any]) -> None:
    body = {"messages": HELLO, "tools": tools, "return_token_strs": True, **options}
    answer = await answered("/tokenize", body)
    prompted = options.get("add_generation_prompt", True)
    expected = family().ids(HELLO, tools=tools, add_generation_prompt=prompted)
    assert answer["tokens"] == expected
    assert answer["count"] == len(expected) == len(answer["token_strs"])
    assert answer["token_strs"][0] == "<|turn|>"


async def test_template_arguments_are_passed_on() -> None:
    body = {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}}
    answer = await answered("/tokenize", body)
    assert answer["tokens"] == family().ids(HELLO, add_generation_prompt=True, enable_thinking=False)
    assert answer["token_strs"] is None


async def test_messages_are_made_ready_for_the_template() -> None:
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Quito"}'},
    }
    wire = [
        {"role": "developer", "content": "Be brief.", "x": 1},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "sunny"}]},
    ]
    ready: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a\nb"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Quito"}}}],
        },
        {"role": "tool", "content": "sunny"},
    ]
    answer = await answered("/tokenize", {"messages": wire, "tools": [WEATHER]})
    assert answer["tokens"] == family().ids(ready, tools=[WEATHER], add_generation_prompt=True)


@pytest.mark.parametrize("written", ["", "[1]", "{", "null", '"x"'])
async def test_arguments_that_are_no_object_become_an_empty_one(written: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": written}}
    body = {"messages": [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}]}
    answer = await answered("/tokenize", body)
    assert '"arguments": {}}' in vocabulary().decode(answer["tokens"])


async def test_text_is_tokenized_and_back_however_long() -> None:
    async with client(max_model_len=8) as opened:
        ids = (await post(opened, "/tokenize", {"prompt": "hello " * 50}))["tokens"]
        text = (await post(opened, "/detokenize", {"tokens": [*ids, 10**9]}))["prompt"]
    assert text == "hello " * 50


async def test_a_message_goes_on_in_tokenize_too() -> None:
    messages = [*HELLO, {"role": "assistant", "content": "So"}]
    body = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
    answer = await answered("/tokenize", body)
    assert answer["tokens"] == family().ids(messages, continue_final_message=True)


ABSENT = object()
OPENED, ENDED, CONTINUED = "opened", "ended", "continued"
BOTH, UNSAID, NO_FLAG = "Cannot set both", "are not compatible", "Input should be a valid boolean"
ENDINGS: list[tuple[object, object, str]] = [
    *((off, on, OPENED) for off in (ABSENT, False, 0) for on in (ABSENT, True, "true", 1, "On")),
    *((off, other, ENDED) for off in (ABSENT, False, 0) for other in (False, "false", 0)),
    *((on, other, CONTINUED) for on in (True, "true", 1) for other in (False, 0)),
    *((on, ABSENT, UNSAID) for on in (True, "true", 1)),
    *((on, other, BOTH) for on in (True, "true", 1, "false", 2) for other in (True, "true", "false", 1)),
    *((any_, None, NO_FLAG) for any_ in (ABSENT, None, False, True, "true", 0, 2)),
    *((None, any_, NO_FLAG) for any_ in (ABSENT, False, True, "false", 0)),
    *((2, other, NO_FLAG) for other in (False, 0)),
    ("false", False, ENDED),
    ("false", ABSENT, OPENED),
]
"""What vLLM 0.32 makes of `continue_final_message` and `add_generation_prompt`, in this order."""


@pytest.mark.parametrize(("goes_on", "prompted", "made"), ENDINGS)
@pytest.mark.parametrize("path", ["/tokenize", CHAT])
async def test_a_prompt_ends_as_its_two_flags_say(
    path: str, goes_on: object, prompted: object, made: str
) -> None:
    messages = [*HELLO, {"role": "assistant", "content": "So"}]
    ids = {
        OPENED: family().ids(messages, add_generation_prompt=True),
        ENDED: family().ids(messages),
        CONTINUED: family().ids(messages, continue_final_message=True),
    }
    flags = {"continue_final_message": goes_on, "add_generation_prompt": prompted}
    said = {name: value for name, value in flags.items() if value is not ABSENT}
    async with client() as opened:
        answer = await opened.post(path, json={"messages": messages, "return_token_ids": True, **said})
    if made in ids:
        assert answer.json()["tokens" if path == "/tokenize" else "prompt_token_ids"] == ids[made]
    else:
        assert answer.status_code == 400
        assert made in answer.json()["error"]["message"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # as uvicorn's
async def test_it_answers_over_a_socket_too() -> None:
    async with (
        served(app(seed=5)) as url,
        httpx2.AsyncClient(base_url=url) as outside,
        client(seed=5) as inside,
    ):
        body = {"messages": HELLO, "return_token_ids": True}
        assert (await post(outside, CHAT, body))["choices"] == (await post(inside, CHAT, body))["choices"]
        assert len(await events(outside, CHAT, body)) == len(await events(inside, CHAT, body))


async def test_unknown_keys_are_ignored() -> None:
    async with client() as opened:
        plain = await post(opened, CHAT, {"messages": HELLO, "return_token_ids": True})
        more = {
            "messages": HELLO,
            "return_token_ids": True,
            "tokens": [1, 2],
            "prompt_token_ids": [3],
            "top_p": 0.5,
        }
        answer = await post(opened, CHAT, more)
    assert answer["prompt_token_ids"] == plain["prompt_token_ids"]
    assert answer["choices"] == plain["choices"]
