"""What the adapter asks a vLLM server."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import httpx2
import pytest

from tests.io.engines.vllm.vllm_server import CARD, PROMPT, chat_answer, completion_answer, mocked, refused
from tito_core import Ids, InputError
from tito_io.engines.protocol import (
    AuthenticationError,
    EngineError,
    OverlongError,
    Rendering,
    RequestError,
    Sampling,
)
from tito_io.engines.vllm import CHAT, COMPLETIONS, VLLM
from tito_io.engines.vllm.requests import OWNED

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
WITH_TOOL = Rendering(tools=(TOOL,), template_args={"enable_thinking": False})
SAMPLING = Sampling(max_tokens=9, temperature=0.0, seed=3, stop=("###",), stop_ids=(8,), extra={"top_p": 0.9})
SAMPLED = {
    "max_tokens": 9,
    "temperature": 0.0,
    "seed": 3,
    "stop": ["###"],
    "stop_token_ids": [8],
    "top_p": 0.9,
}


async def test_messages_go_to_the_chat_route_with_all_that_they_are_rendered_with() -> None:
    engine, mock = mocked({CHAT: chat_answer()})
    await engine.from_messages(HELLO, WITH_TOOL, SAMPLING)
    assert mock.bodies(CHAT) == [
        {
            "model": "m",
            "messages": HELLO,
            "tools": [TOOL],
            "chat_template_kwargs": {"enable_thinking": False},
            **SAMPLED,
            "logprobs": True,
            "return_token_ids": True,
            "return_weight_versions": True,
        }
    ]


async def test_what_was_not_said_is_not_sent() -> None:
    engine, mock = mocked({CHAT: chat_answer()})
    await engine.from_messages(HELLO, Rendering(), Sampling())
    sent = {"model": "m", "messages": HELLO, "logprobs": True, "return_token_ids": True}
    sent["return_weight_versions"] = True
    assert mock.bodies(CHAT) == [sent]


async def test_messages_are_written_as_the_server_reads_them_and_stay_as_they_were() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 2**70}}}
    message = {"role": "assistant", "content": "", "reasoning_content": "so", "tool_calls": [call]}
    engine, mock = mocked({CHAT: chat_answer()})
    await engine.from_messages([*HELLO, message], Rendering(), Sampling())
    said = mock.bodies(CHAT)[0]["messages"][1]
    assert said["reasoning"] == "so"
    assert "reasoning_content" not in said
    assert said["tool_calls"][0]["function"]["arguments"] == f'{{"x": {2**70}}}'
    assert call["function"] == {"name": "f", "arguments": {"x": 2**70}}
    assert "reasoning" not in message


async def test_ids_go_to_the_completions_route_as_they_are() -> None:
    engine, mock = mocked({COMPLETIONS: completion_answer()})
    await engine.from_ids(PROMPT, SAMPLING)
    assert mock.bodies(COMPLETIONS) == [
        {
            "skip_special_tokens": False,
            **SAMPLED,
            "model": "m",
            "prompt": list(PROMPT),
            "add_special_tokens": False,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "return_weight_versions": True,
        }
    ]


async def test_ids_go_to_the_chat_route_beside_no_messages() -> None:
    engine, mock = mocked({CHAT: chat_answer()}, route="chat")
    await engine.from_ids(Ids.of(PROMPT), SAMPLING, WITH_TOOL)
    (body,) = mock.bodies(CHAT)
    assert body["messages"] == []
    assert body["kv_transfer_params"] == {"prompt_token_ids": list(PROMPT)}
    assert body["tools"] == [TOOL]
    assert body["return_token_ids"] is True
    assert body.items() >= SAMPLED.items()


@pytest.mark.parametrize(("route", "path"), [("completions", COMPLETIONS), ("chat", CHAT)])
@pytest.mark.parametrize(("asked", "sent"), [(None, 47), (5, 5), (400, 47)])
async def test_a_turn_may_take_what_is_left_of_the_context(
    route: Any, path: str, asked: int | None, sent: int
) -> None:
    engine, mock = mocked({COMPLETIONS: completion_answer(), CHAT: chat_answer()}, route=route)
    await engine.from_ids(PROMPT, Sampling(max_tokens=asked))
    assert mock.bodies(path)[0]["max_tokens"] == sent


async def test_the_last_id_of_the_context_can_be_sampled() -> None:
    engine, mock = mocked({COMPLETIONS: completion_answer([7], prompt=[1] * 49, finish_reason="length")})
    reply = await engine.from_ids([1] * 49, Sampling())
    assert (reply.completion_ids, reply.truncated) == ((7,), True)
    assert mock.bodies(COMPLETIONS)[0]["max_tokens"] == 1


async def test_messages_are_rendered_by_the_server() -> None:
    engine, mock = mocked(model="m")
    assert await engine.render(HELLO, WITH_TOOL, add_generation_prompt=False) == [1, 2, 3]
    body = {"model": "m", "messages": HELLO, "tools": [TOOL]}
    args = {"chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": False}
    assert mock.asked[-1] == ("/tokenize", {**body, **args})
    assert len(mock.asked) == 2, "and the vocabulary was asked how the model speaks"


async def test_mappings_of_any_kind_can_be_sent() -> None:
    engine, mock = mocked({CHAT: chat_answer()})
    frozen = MappingProxyType({"role": "user", "content": "hello"})
    rendering = Rendering(tools=(MappingProxyType(TOOL),), template_args=MappingProxyType({"x": 1}))
    await engine.from_messages((frozen,), rendering, Sampling())
    (body,) = mock.bodies(CHAT)
    assert (body["messages"], body["tools"], body["chat_template_kwargs"]) == (HELLO, [TOOL], {"x": 1})


@pytest.mark.parametrize(
    "calls", [None, [], "f", ["f"], [{"function": "f"}], [{"function": {"arguments": "{}"}}]]
)
async def test_other_calls_are_sent_as_they_are(calls: Any) -> None:
    message = {"role": "assistant", "content": "", "tool_calls": calls}
    engine, mock = mocked({CHAT: chat_answer()})
    await engine.from_messages([message], Rendering(), Sampling())
    assert mock.bodies(CHAT)[0]["messages"] == [message]


@pytest.mark.parametrize("base_url", ["http://mock", "http://mock/", "http://mock/v1", "http://mock/v1/"])
async def test_an_address_may_end_in_the_version_of_its_routes(base_url: str) -> None:
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(200, json={"version": "0.32.0"})

    assert await VLLM(base_url, transport=httpx2.MockTransport(answer)).version() == "0.32.0"
    assert seen == ["http://mock/version"]


async def test_a_server_may_be_mounted_below_a_path() -> None:
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.path)
        return httpx2.Response(200, json={"version": "1"})

    await VLLM("https://host/a/b/v1", transport=httpx2.MockTransport(answer)).version()
    assert seen == ["/a/b/version"]


@pytest.mark.parametrize("base_url", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host:port"])
def test_an_address_that_is_none_is_named(base_url: str) -> None:
    with pytest.raises(InputError, match=r"^base_url: "):
        VLLM(base_url)


async def test_the_only_model_is_found_and_asked_for_once() -> None:
    engine, mock = mocked({COMPLETIONS: completion_answer()})
    for _ in range(3):
        await engine.from_ids(PROMPT, Sampling())
    assert len(mock.bodies("/v1/models")) == 1
    assert len(mock.bodies("/tokenize")) == 9, "the tags are looked up once"


@pytest.mark.parametrize(("cards", "told"), [([], "none"), ([CARD, {**CARD, "id": "n"}], "m, n")])
async def test_which_model_must_be_said_where_there_is_not_just_one(cards: list[Any], told: str) -> None:
    engine, _ = mocked({"/v1/models": {"data": cards}})
    with pytest.raises(InputError, match=f"the server has {told}.*; pass one of them"):
        await engine.served()


async def test_an_adapter_has_the_context_of_its_model() -> None:
    adapter = {**CARD, "id": "lora", "parent": "m", "max_model_len": None}
    models = {"/v1/models": {"data": [CARD, adapter]}}
    for name in ("lora", "not listed yet"):
        assert (await mocked(models, model=name)[0].served()).max_model_len == 50
    assert (await mocked(models)[0].served()).name == "m"


async def test_a_server_that_does_not_say_its_context_needs_a_limit() -> None:
    unsaid = {"/v1/models": {"data": [{"id": "m"}]}, COMPLETIONS: completion_answer()}
    engine, mock = mocked(unsaid)
    with pytest.raises(InputError, match="max_tokens"):
        await engine.from_ids(PROMPT, Sampling())
    await engine.from_ids(PROMPT, Sampling(max_tokens=3))
    assert mock.bodies(COMPLETIONS)[0]["max_tokens"] == 3


@pytest.mark.parametrize("name", sorted(OWNED))
async def test_no_extra_key_may_part_ids_from_answers(name: str) -> None:
    engine, mock = mocked()
    for asking in (
        engine.from_ids(PROMPT, Sampling(extra={name: 1})),
        engine.from_messages(HELLO, Rendering(), Sampling(extra={name: 1})),
    ):
        with pytest.raises(InputError, match=name):
            await asking
    assert not mock.bodies(CHAT) + mock.bodies(COMPLETIONS)


@pytest.mark.parametrize("wanted", [0, -4])
async def test_a_turn_of_no_ids_is_not_asked_for(wanted: int) -> None:
    engine, mock = mocked()
    with pytest.raises(InputError, match="max_tokens"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=wanted))
    with pytest.raises(InputError, match="max_tokens"):
        await engine.from_messages(HELLO, Rendering(), Sampling(max_tokens=wanted))
    assert not mock.bodies(CHAT) + mock.bodies(COMPLETIONS)


async def test_text_without_an_encoding_is_the_callers_mistake() -> None:
    engine, _ = mocked()
    with pytest.raises(InputError, match="JSON"):
        await engine.from_messages([{"role": "user", "content": "\ud800"}], Rendering(), Sampling())
    with pytest.raises(InputError, match="JSON"):
        await engine.from_messages(HELLO, Rendering(template_args={"x": object()}), Sampling())


def test_a_route_that_is_none_is_named() -> None:
    with pytest.raises(InputError, match="'messages': pass one of completions, chat, generate"):
        VLLM("http://127.0.0.1:8000", route="messages")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(InputError, match="output_format is 'sindarin'"):
        VLLM("http://127.0.0.1:8000", output_format="sindarin")  # type: ignore[arg-type]  # likewise


async def test_the_connections_can_be_closed() -> None:
    engine, _ = mocked()
    await engine.version()
    await engine.aclose()
    with pytest.raises(RuntimeError):
        await engine.version()


@pytest.mark.parametrize("route", ["completions", "chat", "generate", "auto", "tokens"])
async def test_a_server_is_not_asked_for_models_where_model_and_context_are_given(route: Any) -> None:
    engine, mock = mocked(
        {"/v1/models": refused("no such route", 404)}, route=route, model="m", max_model_len=50
    )
    assert (await engine.limits()).max_model_len == 50
    with pytest.raises(EngineError):  # the mock answers no turn
        await engine.from_ids(PROMPT, Sampling())
    with pytest.raises(OverlongError, match="Nothing was sent"):
        await engine.from_ids([1] * 50, Sampling())
    assert mock.bodies("/v1/models") == []
    assert mock.asked[-1][1]["model"] == "m"


async def test_the_context_that_is_given_holds_for_the_model_that_is_listed() -> None:
    engine, mock = mocked(max_model_len=40)
    assert (await engine.limits()).max_model_len == 40
    assert len(mock.bodies("/v1/models")) == 1


async def test_a_server_without_a_list_of_models_is_given_the_model_s_name() -> None:
    absent = {"/v1/models": httpx2.Response(404, json={"detail": "Not Found"})}
    engine, mock = mocked({**absent, COMPLETIONS: completion_answer()}, model="m")
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=9))).completion_ids == (7, 8)
    assert mock.bodies(COMPLETIONS)[0]["max_tokens"] == 9
    assert (await engine.limits()).max_model_len is None
    assert len(mock.bodies("/v1/models")) == 1, "it is asked once"
    with pytest.raises(InputError, match="does not state the context length of m"):
        await engine.from_ids(PROMPT, Sampling())
    with pytest.raises(RequestError, match="/v1/models answered 404"):
        await mocked(absent)[0].from_ids(PROMPT, Sampling(max_tokens=9))
    refusal = {"/v1/models": httpx2.Response(401, json={"error": "no"})}
    with pytest.raises(AuthenticationError, match="/v1/models answered 401"):
        await mocked(refusal, model="m")[0].from_ids(PROMPT, Sampling(max_tokens=9))
