"""The SDKs that agents really use, over a socket, against an engine that thinks, calls and errs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import attrs
import httpx2
import openai
import pytest

from tests.io.embedded.embedded_client import WEATHER
from tito_io.client.turn import Route
from tito_io.dialects import StreamReading
from tito_io.embedded import TIDY, FaultRates, app
from tito_io.engines.protocol import Delta, EngineError, OverlongError, ServerError, UnreachableError
from tito_io.engines.replies.chunks import Assembly
from tito_io.engines.vllm import VLLM

from .dialect_gateway import Failing, Gateway, serving

TURNS = 6
FUNCTION: Any = WEATHER["function"]
ASK = "What is the weather in Quito?"
BUSY = attrs.evolve(TIDY, tool_calls=1.0, reasoning=1.0, second_calls=0.5)
WILD = FaultRates(tool_calls=0.9, malformed=0.5, empty=0.1)


def engine(seed: int, fault_rates: FaultRates) -> VLLM:
    return VLLM("http://embedded", transport=httpx2.ASGITransport(app(seed=seed, fault_rates=fault_rates)))


@contextmanager
def chatting(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with serving(gateway) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        yield client


@contextmanager
def claude(gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    with serving(gateway) as url, anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
        yield client


Loop = Callable[..., None]


def chat_loop(gateway: Gateway, *, streamed: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": ASK}]
    with chatting(gateway) as client:
        for turn in range(TURNS):
            asked: Any = {"model": "m", "messages": messages, "tools": [WEATHER], "max_tokens": 200}
            if streamed and turn % 2:
                made = Assembly()
                for chunk in client.chat.completions.create(**asked, stream=True):
                    made.add(chunk.model_dump(exclude_unset=True))
                message = made.body()["choices"][0]["message"]
            else:
                message = (
                    client.chat.completions.create(**asked).choices[0].message.model_dump(exclude_none=True)
                )
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
                for call in message.get("tool_calls") or ()
            ]
            messages += [message, *(results or [{"role": "user", "content": f"And {turn}?"}])]


def anthropic_loop(gateway: Gateway, *, streamed: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": ASK}]
    described = {"name": FUNCTION["name"], "description": FUNCTION["description"]}
    tool: Any = {**described, "input_schema": FUNCTION["parameters"]}
    with claude(gateway) as client:
        for turn in range(TURNS):
            asked: Any = {"model": "m", "messages": messages, "tools": [tool], "max_tokens": 200}
            if streamed and turn % 2:
                with client.messages.stream(**asked) as stream:
                    message: Any = stream.get_final_message()
            else:
                message = client.messages.create(**asked)
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
                for block in message.content
                if block.type == "tool_use"
            ]
            assert (message.stop_reason == "tool_use") == bool(results) or message.stop_reason == "max_tokens"
            said = results or f"And {turn}?"
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": said}]


def responses_loop(gateway: Gateway, *, streamed: bool) -> None:
    items: list[Any] = [{"role": "user", "content": ASK}]
    with chatting(gateway) as client:
        for turn in range(TURNS):
            asked: Any = {"model": "m", "input": items, "tools": [{"type": "function", **FUNCTION}]}
            output = spoken(
                client, {**asked, "max_output_tokens": 200}, streamed=streamed and bool(turn % 2)
            ).output
            items += [one.model_dump(exclude_none=True) for one in output]
            results = [
                {"type": "function_call_output", "call_id": one.call_id, "output": "sunny"}
                for one in output
                if one.type == "function_call"
            ]
            items += results or [{"role": "user", "content": f"And {turn}?"}]


def named_loop(gateway: Gateway, *, streamed: bool) -> None:
    """Go on by `previous_response_id`, and send what is new alone."""
    new: Any = ASK
    earlier = None
    with chatting(gateway) as client:
        for turn in range(TURNS):
            asked: Any = {
                "model": "m",
                "input": new,
                "instructions": "Be brief.",
                "previous_response_id": earlier,
            }
            tools = [{"type": "function", **FUNCTION}]
            asked |= {"tools": tools, "max_output_tokens": 200}
            response = spoken(client, asked, streamed=streamed and bool(turn % 2))
            earlier = response.id
            new = [
                {"type": "function_call_output", "call_id": one.call_id, "output": "sunny"}
                for one in response.output
                if one.type == "function_call"
            ] or f"And {turn}?"


def spoken(client: openai.OpenAI, asked: dict[str, Any], *, streamed: bool) -> Any:
    if not streamed:
        return client.responses.create(**asked)
    *_, last = client.responses.create(**asked, stream=True)
    assert last.type in ("response.completed", "response.incomplete")
    return last.response


@pytest.mark.parametrize("fault_rates", [BUSY, WILD], ids=["busy", "wild"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("loop", [chat_loop, anthropic_loop, responses_loop, named_loop])
def test_what_sdks_echo_goes_by_ids(loop: Loop, fault_rates: FaultRates, *, streamed: bool) -> None:
    gateway = Gateway(engine(3, fault_rates))
    loop(gateway, streamed=streamed)
    assert gateway.client.counts.routes == {Route.MITO: 1, Route.TITO: TURNS - 1}
    assert not gateway.client.counts.errors
    for before, after in zip(gateway.steps, gateway.steps[1:], strict=False):
        assert after.prompt_ids.starts_with(before.ids)


def test_a_tool_runner_sends_the_whole_conversation() -> None:
    """It asks for a `thread` first, of which it would send new messages alone."""

    @anthropic.beta_tool
    def get_weather(city: str = "") -> str:
        """Tell the weather."""
        return f"sunny{city[:0]}"

    gateway = Gateway(engine(3, BUSY))
    asked: Any = [{"role": "user", "content": ASK}]
    with claude(gateway) as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=200, tools=[get_weather], messages=asked, max_iterations=TURNS
        )
        turns = len(list(runner))
    assert turns > 1
    assert gateway.client.counts.routes == {Route.MITO: 1, Route.TITO: turns - 1}
    assert [len(step.prompt) for step in gateway.steps] == [1 + 2 * turn for turn in range(turns)]


@pytest.mark.parametrize("loop", [chat_loop, anthropic_loop, responses_loop])
def test_every_dialect_asks_the_same(loop: Loop) -> None:
    """The same conversation by another API is sampled after the same ids."""
    gateway, plain = Gateway(engine(3, BUSY)), Gateway(engine(3, BUSY))
    loop(gateway, streamed=True)
    chat_loop(plain, streamed=False)
    ours, theirs = ([step.ids.tolist() for step in one.steps[:2]] for one in (gateway, plain))
    assert ours == theirs


def test_a_chat_tells_ids_and_counts() -> None:
    extra = {"return_token_ids": True}
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": ASK}], "logprobs": True}
    options: Any = {"stream_options": {"include_usage": True}, "stream": True}
    with chatting(Gateway(engine(5, TIDY))) as client:
        whole = client.chat.completions.create(**asked, extra_body=extra)
        chunks = list(client.chat.completions.create(**asked, **options, extra_body=extra))
    choice: Any = whole.choices[0]
    pieces: list[Any] = [choice for chunk in chunks for choice in chunk.choices]
    assert whole.usage is not None
    assert len(choice.token_ids) == len(choice.logprobs.content) == whole.usage.completion_tokens
    assert [index for one in pieces for index in getattr(one, "token_ids", ())] == choice.token_ids
    scores = [entry.logprob for one in pieces if one.logprobs for entry in one.logprobs.content]
    assert scores == [entry.logprob for entry in choice.logprobs.content]
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [len(choice.token_ids)]
    prompts = [chunk.model_extra.get("prompt_token_ids") for chunk in chunks if chunk.model_extra]
    assert list(filter(None, prompts)) == [(whole.model_extra or {})["prompt_token_ids"]]


def test_thoughts_are_blocks_and_items() -> None:
    fault_rates = attrs.evolve(TIDY, reasoning=1.0)
    messages: Any = [{"role": "user", "content": ASK}]
    with claude(Gateway(engine(5, fault_rates))) as client:
        message = client.messages.create(model="m", messages=messages, max_tokens=200)
        with client.messages.stream(model="m", messages=messages, max_tokens=200) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
    with chatting(Gateway(engine(5, fault_rates))) as client_:
        response = client_.responses.create(model="m", input=ASK, max_output_tokens=200)
        said = (
            client_.chat.completions.create(model="m", messages=messages, max_tokens=200).choices[0].message
        )
    thought: Any = said.model_extra
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == thought["reasoning"] == thought["reasoning_content"]  # type: ignore[union-attr]  # asserted above
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].content[0].text == thought["reasoning"]  # type: ignore[index,union-attr]  # asserted above
    assert message.content[1].text == response.output_text == said.content  # type: ignore[union-attr]  # asserted above
    assert [one.to_dict() for one in final.content][1] == message.content[1].to_dict()
    assert {"thinking", "signature", "text"} <= set(kinds)


def test_an_answer_that_is_cut_says_so() -> None:
    with claude(Gateway(engine(5, TIDY))) as client:
        message = client.messages.create(model="m", messages=[{"role": "user", "content": ASK}], max_tokens=2)
    with chatting(Gateway(engine(5, TIDY))) as client_:
        response = client_.responses.create(model="m", input=ASK, max_output_tokens=2)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 2)
    assert (response.status, response.usage and response.usage.output_tokens) == ("incomplete", 2)
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_string_that_ends_a_turn_is_named() -> None:
    messages: Any = [{"role": "user", "content": ASK}]
    with claude(Gateway(engine(5, attrs.evolve(TIDY, reasoning=0.0)))) as client:
        text: Any = client.messages.create(model="m", messages=messages, max_tokens=200).content[-1]
        word = text.text.split()[2]
        cut = client.messages.create(model="m", messages=messages, max_tokens=200, stop_sequences=[word])
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", word)


def test_prompts_are_counted() -> None:
    with claude(Gateway(engine(5, TIDY))) as client:
        assert (
            client.messages.count_tokens(model="m", messages=[{"role": "user", "content": ASK}]).input_tokens
            > 0
        )


def test_what_is_cached_is_no_input() -> None:
    with claude(Gateway(engine(5, TIDY))) as client:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": ASK * 9}], "max_tokens": 9}
        first, second = client.messages.create(**asked).usage, client.messages.create(**asked).usage
    assert second.cache_read_input_tokens
    assert second.input_tokens + second.cache_read_input_tokens == first.input_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_translated_is_a_bad_request(*, stream: bool) -> None:
    messages: Any = [{"role": "user", "content": ASK}]
    with chatting(Gateway(engine(5, TIDY))) as client:
        with pytest.raises(openai.BadRequestError, match="tool_choice") as caught:
            client.chat.completions.create(
                model="m",
                messages=messages,
                tools=[WEATHER],
                tool_choice="any",
                stream=stream,  # type: ignore[call-overload]  # a dict
            )
        assert (caught.value.param, caught.value.type) == ("tool_choice", "invalid_request_error")
        with pytest.raises(openai.BadRequestError, match="wait for the answer") as caught:
            client.responses.create(model="m", input=ASK, background=True, stream=stream)
        assert caught.value.param == "background"
    with claude(Gateway(engine(5, TIDY))) as client_:
        block: Any = {"type": "document", "source": {"type": "base64", "data": "x"}}
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content\[0\]") as failed:
            client_.messages.create(
                model="m", messages=[{"role": "user", "content": [block]}], max_tokens=9, stream=stream
            )
        assert failed.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("error", "kind", "ours", "theirs"),
    [
        (
            OverlongError("too long by 7"),
            "context_length_exceeded",
            openai.BadRequestError,
            anthropic.BadRequestError,
        ),
        (ServerError("it broke"), "ServerError", openai.InternalServerError, anthropic.InternalServerError),
        (
            UnreachableError("gone"),
            "UnreachableError",
            openai.InternalServerError,
            anthropic.InternalServerError,
        ),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_an_engine_s_errors_are_the_sdk_s_own(error: EngineError, kind: str, ours: Any, theirs: Any) -> None:
    messages: Any = [{"role": "user", "content": ASK}]
    with chatting(Gateway(Failing(error))) as client:
        with pytest.raises(ours, match=str(error)) as caught:
            client.chat.completions.create(model="m", messages=messages)
        assert caught.value.code == kind
        with pytest.raises(ours, match=str(error)):
            client.responses.create(model="m", input=ASK)
    with claude(Gateway(Failing(error))) as client_, pytest.raises(theirs, match=str(error)):
        client_.messages.create(model="m", messages=messages, max_tokens=9)


def test_an_error_in_a_stream_is_an_error_of_the_sdk() -> None:
    broken = Failing(ServerError("it broke"), (Delta(ids=(7,), text="Once"),))
    messages: Any = [{"role": "user", "content": ASK}]
    with chatting(Gateway(broken, reading=StreamReading())) as client:
        chat = client.chat.completions.create(model="m", messages=messages, stream=True)
        with pytest.raises(openai.APIError, match="it broke"):
            list(chat)
        events = list(client.responses.create(model="m", input=ASK, stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert (events[-1].response.error.code, events[-1].response.error.message) == ("server_error", "it broke")
    assert "Once" in [event.delta for event in events if event.type == "response.output_text.delta"]
    with claude(Gateway(broken)) as client_:
        told = client_.messages.create(model="m", messages=messages, max_tokens=9, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="it broke"):
            list(told)
