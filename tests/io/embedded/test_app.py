"""The small routes, and every way in which a request is wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
import uvicorn

from tito_io.embedded import MODEL, app, family, vocabulary
from tito_io.extras import install

from .embedded_client import HELLO, WEATHER, client, events, post

pytestmark = pytest.mark.anyio
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


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
    async with client() as opened:
        body = {"messages": HELLO, "tools": tools, "return_token_strs": True, **options}
        answer = await post(opened, "/tokenize", body)
    prompted = options.get("add_generation_prompt", True)
    expected = family().ids(HELLO, tools=tools, add_generation_prompt=prompted)
    assert answer["tokens"] == expected
    assert answer["count"] == len(expected) == len(answer["token_strs"])
    assert answer["token_strs"][0] == "<|turn|>"


async def test_template_arguments_are_passed_on() -> None:
    async with client() as opened:
        body = {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}}
        answer = await post(opened, "/tokenize", body)
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
    async with client() as opened:
        answer = await post(opened, "/tokenize", {"messages": wire, "tools": [WEATHER]})
    assert answer["tokens"] == family().ids(ready, tools=[WEATHER], add_generation_prompt=True)


@pytest.mark.parametrize("written", ["", "[1]", "{", "null", '"x"'])
async def test_arguments_that_are_no_object_become_an_empty_one(written: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": written}}
    async with client() as opened:
        body = {"messages": [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}]}
        answer = await post(opened, "/tokenize", body)
    assert '"arguments": {}}' in vocabulary().decode(answer["tokens"])


async def test_text_is_tokenized_and_back_however_long() -> None:
    async with client(max_model_len=8) as opened:
        ids = (await post(opened, "/tokenize", {"prompt": "hello " * 50}))["tokens"]
        text = (await post(opened, "/detokenize", {"tokens": [*ids, 10**9]}))["prompt"]
    assert text == "hello " * 50


async def test_a_message_goes_on_in_tokenize_too() -> None:
    messages = [*HELLO, {"role": "assistant", "content": "So"}]
    async with client() as opened:
        body = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}
        answer = await post(opened, "/tokenize", body)
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


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/nope", 404), ("PUT", "/tokenize", 405)])
async def test_what_is_no_route_is_told_plainly(method: str, path: str, status: int) -> None:
    async with client() as opened:
        answer = await opened.request(method, path)
    assert answer.status_code == status
    assert answer.json() == {"detail": "Not Found" if status == 404 else "Method Not Allowed"}


@pytest.mark.parametrize("path", ["/inference/v1/generate", "/v1/chat/completions/render"])
async def test_a_route_that_a_server_may_lack_is_forbidden(path: str) -> None:
    async with client() as opened:
        answer = await opened.post(path, json={})
    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "PermissionDeniedError"


async def refused(path: str, body: dict[str, Any], *, status: int = 400, **options: Any) -> dict[str, Any]:
    """Post a body that is refused, and return the error in its envelope."""
    async with client(**options) as opened:
        answer = await opened.post(path, json=body)
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    return error


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize", "/detokenize"])
async def test_another_model_is_not_found(path: str) -> None:
    body = {"model": "nope", "messages": HELLO, "prompt": [1], "tokens": [1]}
    error = await refused(path, body, status=404, model="mine")
    assert error["message"] == "The model `nope` does not exist. Valid aliases: mine."
    assert (error["type"], error["param"]) == ("NotFoundError", "model")


TOO_LONG = (
    "This model's maximum context length is 64 tokens. However, your prompt contains {} input tokens, which "
    "exceeds this limit even without any output tokens. Please reduce the length of the input prompt. "
    "(parameter=input_tokens, value={})"
)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_may_be_too_long(stream: bool) -> None:
    long = [{"role": "user", "content": "hello " * 100}]
    options = {"max_model_len": 64}
    by_text = await refused(CHAT, {"messages": long, "stream": stream}, **options)
    by_ids = await refused(COMPLETIONS, {"prompt": [5] * 70, "stream": stream}, **options)
    brought = await refused(
        CHAT, {"messages": [], "kv_transfer_params": {"prompt_token_ids": [5] * 70}}, **options
    )
    assert by_text["message"] == TOO_LONG.format("at least 65", 65)
    completed = await refused(COMPLETIONS, {"prompt": "hello " * 100}, **options)
    assert completed["message"] == TOO_LONG.format("at least 65", 65)
    assert by_ids["message"] == TOO_LONG.format(70, 70)
    assert by_text["param"] == by_ids["param"] == "input_tokens"
    assert brought["message"] == "Input length (70) exceeds model's maximum context length (64)."


async def test_a_prompt_that_fills_the_context_looks_like_a_mistake_of_the_client() -> None:
    error = await refused(COMPLETIONS, {"prompt": [5] * 64, "max_tokens": 9}, max_model_len=64)
    assert error["message"] == "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"
    assert error["param"] == "max_tokens"


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no room": (CHAT, {"messages": HELLO, "max_tokens": 0}, "max_tokens must be at least 1, got 0."),
    "below zero": (CHAT, {"messages": HELLO, "max_tokens": -3}, "max_tokens must be at least 1, got -3."),
    "cold": (CHAT, {"messages": HELLO, "temperature": -1}, "temperature must be non-negative, got -1.0."),
    "least": (
        CHAT,
        {"messages": HELLO, "min_tokens": 9, "max_tokens": 3},
        "less than or equal to max_tokens=3",
    ),
    "none of n": (CHAT, {"messages": HELLO, "n": 0}, "n must be at least 1, got 0."),
    "many of n": (CHAT, {"messages": HELLO, "n": 1_000_000}, "n must be at most 1024, got 1000000."),
    "top_p": (CHAT, {"messages": HELLO, "top_p": 5}, "top_p must be in (0, 1], got 5.0."),
    "top_p text": (CHAT, {"messages": HELLO, "top_p": "a"}, "body.top_p"),
    "min_p": (CHAT, {"messages": HELLO, "min_p": -0.1}, "min_p must be in [0, 1], got -0.1."),
    "top_k": (CHAT, {"messages": HELLO, "top_k": 1.5}, "top_k must be 0 or -1 (disable), or at least 1"),
    "penalty": (CHAT, {"messages": HELLO, "presence_penalty": 99}, "must be in [-2, 2], got 99.0."),
    "repetition": (CHAT, {"messages": HELLO, "repetition_penalty": -1}, "must be greater than zero"),
    "long text": (
        CHAT,
        {"messages": HELLO, "structured_outputs": {"json": {"type": "string", "minLength": 100_000_000}}},
        "more than 65,536 characters",
    ),
    "long list": (
        CHAT,
        {
            "messages": HELLO,
            "structured_outputs": {
                "json": {"minItems": 999, "items": {"minItems": 999, "items": {"minItems": 999}}}
            },
        },
        "more than 65,536 characters",
    ),
    "greedy n": (CHAT, {"messages": HELLO, "n": 2, "temperature": 0}, "n must be 1 when using greedy"),
    "empty stop": (CHAT, {"messages": HELLO, "stop": [""]}, "stop cannot contain an empty string"),
    "stop": (CHAT, {"messages": HELLO, "stop": 5}, "body.stop"),
    "options": (CHAT, {"messages": HELLO, "stream_options": {"include_usage": True}}, "`stream=True`"),
    "option": (
        CHAT,
        {"messages": HELLO, "stream": True, "stream_options": {"include_usage": "maybe"}},
        "body.stream_options.include_usage",
    ),
    "top alone": (CHAT, {"messages": HELLO, "top_logprobs": 2}, "`logprobs` must be set to true"),
    "top many": (CHAT, {"messages": HELLO, "logprobs": True, "top_logprobs": 50}, "max allowed: 20"),
    "many": (COMPLETIONS, {"prompt": [5], "logprobs": 50}, "Requested sample logprobs of 50"),
    "scored stream": (CHAT, {"messages": HELLO, "prompt_logprobs": 1, "stream": True}, "not available when"),
    "no tools": (CHAT, {"messages": HELLO, "tools": []}, "must not be an empty array"),
    "choice": (CHAT, {"messages": HELLO, "tool_choice": "auto"}, "`tools` must be set"),
    "odd choice": (CHAT, {"messages": HELLO, "tools": [WEATHER], "tool_choice": "x"}, "Invalid value"),
    "other choice": (
        CHAT,
        {"messages": HELLO, "tools": [WEATHER], "tool_choice": {"function": {"name": "x"}}},
        "does not match any",
    ),
    "no messages": (CHAT, {}, "'loc': 'body.messages', 'msg': 'Field required'"),
    "empty messages": (CHAT, {"messages": []}, "Provide at least one message."),
    "empty messages to tokenize": ("/tokenize", {"messages": []}, "Provide at least one message."),
    "messages": (CHAT, {"messages": "x"}, "body.messages"),
    "message": (CHAT, {"messages": ["x"]}, "body.messages.0"),
    "role": (CHAT, {"messages": [{"content": "x"}]}, "body.messages.0.role"),
    "unknown role": (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, "A turn of wizard cannot be"),
    "null": (CHAT, {"messages": [{"role": "user", "content": None}]}, "body.messages.0.content"),
    "part": (CHAT, {"messages": [{"role": "user", "content": ["x"]}]}, "body.messages.0.content.0"),
    "image": (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text alone"),
    "calls": (
        CHAT,
        {"messages": [{"role": "assistant", "tool_calls": {"a": 1}}]},
        "body.messages.0.tool_calls",
    ),
    "call": (CHAT, {"messages": [{"role": "assistant", "tool_calls": ["x"]}]}, "type 'function'"),
    "arguments": (
        CHAT,
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]},
        "arguments",
    ),
    "both": (
        "/tokenize",
        {"messages": HELLO, "continue_final_message": True, "add_generation_prompt": True},
        "Cannot set both",
    ),
    "template": (CHAT, {"messages": HELLO, "chat_template": "x"}, "not trusted"),
    "kwargs": (CHAT, {"messages": HELLO, "chat_template_kwargs": 5}, "body.chat_template_kwargs"),
    "nothing": (COMPLETIONS, {"prompt": []}, "You must pass at least one prompt"),
    "nothing in one": (COMPLETIONS, {"prompt": [[5], []]}, "cannot be empty"),
    "no prompt": (COMPLETIONS, {}, "Either prompt or prompt_embeds must be provided"),
    "no text": (COMPLETIONS, {"prompt": ""}, "Either prompt or prompt_embeds must be provided"),
    "number": (COMPLETIONS, {"prompt": 5}, "body.prompt"),
    "mixed": (COMPLETIONS, {"prompt": [5, "x"]}, "body.prompt.1"),
    "fraction": (COMPLETIONS, {"prompt": [1.5]}, "body.prompt.0"),
    "negative": (COMPLETIONS, {"prompt": [5, -2]}, "greater than or equal to 0"),
    "huge": (COMPLETIONS, {"prompt": [2**64]}, "body.prompt"),
    "unknown id": (COMPLETIONS, {"prompt": [5, 99_999]}, "Token id 99999 is out of vocabulary"),
    "unknown id brought": (
        CHAT,
        {"messages": [], "kv_transfer_params": {"prompt_token_ids": [99_999]}},
        "Token id 99999 is out of vocabulary (parameter=kv_transfer_params.prompt_token_ids)",
    ),
    "nothing brought": (
        CHAT,
        {"messages": [], "kv_transfer_params": {"prompt_token_ids": []}},
        "must be a non-empty list of non-negative integers",
    ),
    "negative brought": (
        CHAT,
        {"messages": [], "kv_transfer_params": {"prompt_token_ids": [-1]}},
        "must be a non-empty list of non-negative integers",
    ),
    "negative token": ("/detokenize", {"tokens": [-1]}, "greater than or equal to 0"),
    "no tokens": ("/detokenize", {}, "body.tokens"),
    "nothing to tokenize": ("/tokenize", {}, "body.prompt"),
    "no text to tokenize": ("/tokenize", {"prompt": 5}, "body.prompt"),
    "flag": (CHAT, {"messages": HELLO, "stream": "maybe"}, "body.stream"),
    "whole": (CHAT, {"messages": HELLO, "max_tokens": 1.5}, "body.max_tokens"),
    "seed": (CHAT, {"messages": HELLO, "seed": "x"}, "body.seed"),
    "stop ids": (CHAT, {"messages": HELLO, "stop_token_ids": ["x"]}, "body.stop_token_ids"),
    "model": (CHAT, {"messages": HELLO, "model": 5}, "body.model"),
    "echo": (COMPLETIONS, {"prompt": [5], "echo": True}, "`echo` is not supported"),
    "format": (
        CHAT,
        {"messages": HELLO, "response_format": {"type": "structural_tag", "format": {}}},
        "`response_format` is not",
    ),
    "hidden": (CHAT, {"messages": HELLO, "include_reasoning": False}, "`include_reasoning` is not"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_this_is_refused(case: str) -> None:
    path, body, told = REFUSED[case]
    assert told in (await refused(path, body))["message"]


@pytest.mark.parametrize(
    ("media", "raw", "told"),
    [
        ("application/json", b"{not json", "Expecting property name enclosed in double quotes"),
        ("application/json", b"[1]", "valid dictionary"),
        ("application/json", b"", "Field required"),
        ("text/plain", b"{}", "Only 'application/json' is allowed"),
        ("application/json", b'{"messages": [], "temperature": NaN}', "body.temperature"),
    ],
)
async def test_what_is_no_json_object_is_refused(media: str, raw: bytes, told: str) -> None:
    async with client() as opened:
        answer = await opened.post(CHAT, content=raw, headers={"content-type": media})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] in ("Bad Request", "BadRequestError")
    assert told in answer.json()["error"]["message"] or told == "body.temperature"


DEEP = b'{"messages": ' + b"[" * 1500 + b"]" * 1500 + b"}"


@pytest.mark.parametrize("body", [b"\xff{", rb'{"model": "\ud83d"}', rb'{"tools": [{"\udfff": 1}]}', DEEP])
async def test_what_is_no_text_or_nests_too_deep_is_refused(body: bytes) -> None:
    async with client() as opened:
        answer = await opened.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()) == (400, {"detail": "There was an error parsing the body"})


async def test_it_answers_over_a_socket_too() -> None:
    config = uvicorn.Config(app(seed=5), log_level="critical", lifespan="off", ws="none")
    with socket.create_server(("127.0.0.1", 0)) as listening, served(uvicorn.Server(config), listening):
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=url) as outside, client(seed=5) as inside:
            body = {"messages": HELLO, "return_token_ids": True}
            assert (await post(outside, CHAT, body))["choices"] == (await post(inside, CHAT, body))["choices"]
            assert len(await events(outside, CHAT, body)) == len(await events(inside, CHAT, body))


@contextmanager
def served(server: uvicorn.Server, listening: socket.socket) -> Iterator[None]:
    """Serve from a thread of its own until the block ends."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


async def test_the_template_s_own_words_are_passed_on() -> None:
    error = await refused(CHAT, {"messages": [{"role": "wizard", "content": "x"}]})
    assert error["message"] == "A turn of wizard cannot be written: use system, user, assistant or tool."


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
