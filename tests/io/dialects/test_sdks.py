"""The SDKs that agents really use, over a socket, against an engine that thinks, calls and errs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import anthropic
import attrs
import openai
import pytest

from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import Scripted, embedded_gateway, scripted_gateway
from tito_io.embedded import TIDY, FaultRates
from tito_io.engines.protocol import (
    Delta,
    EngineError,
    OverlongError,
    Reply,
    SampleRequest,
    ServerError,
    UnreachableError,
)

from .sdk_gateway import ASK, ASKED, FUNCTION, SdkSession, answered, session

TURNS = 6
BUSY = attrs.evolve(TIDY, tool_calls=1.0, reasoning=1.0, second_calls=0.5)
WILD = FaultRates(tool_calls=0.9, malformed=0.5, empty=0.1)
Loop = Callable[..., None]


def chat_loop(talk: SdkSession, *, streamed: bool) -> None:
    messages = list(ASKED)
    with talk.openai() as client:
        for turn in range(TURNS):
            asked: Any = {"model": "m", "messages": messages, "tools": [WEATHER], "max_tokens": 200}
            made = answered(client.chat.completions, stream=streamed and bool(turn % 2), **asked)
            message = made.choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
                for call in message.get("tool_calls") or ()
            ]
            messages += [message, *(results or [{"role": "user", "content": f"And {turn}?"}])]


def anthropic_loop(talk: SdkSession, *, streamed: bool) -> None:
    messages = list(ASKED)
    tool: Any = {"name": FUNCTION["name"], "input_schema": FUNCTION["parameters"]}
    tool["description"] = FUNCTION["description"]
    with talk.claude() as client:
        for turn in range(TURNS):
            asked: Any = {"model": "m", "messages": messages, "tools": [tool], "max_tokens": 200}
            message = answered(client.messages, stream=streamed and bool(turn % 2), **asked)
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
                for block in message.content
                if block.type == "tool_use"
            ]
            assert (message.stop_reason == "tool_use") == bool(results) or message.stop_reason == "max_tokens"
            said = results or f"And {turn}?"
            messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": said}]


def responses_loop(talk: SdkSession, *, streamed: bool, named: bool = False) -> None:
    """Send all items with every turn, or go on by the name of the response before with the new ones."""
    new: list[Any] = list(ASKED)
    items, earlier = list[Any](), None
    with talk.openai() as client:
        for turn in range(TURNS):
            items = new if named else [*items, *new]
            asked: dict[str, Any] = {"model": "m", "input": items}
            asked |= {"tools": [{"type": "function", **FUNCTION}]}
            asked |= {"max_output_tokens": 200, "previous_response_id": earlier}
            asked |= {"instructions": "Be brief."} if named else {}
            response = spoken(client, asked, streamed=streamed and bool(turn % 2))
            earlier = response.id if named else None
            items = [*items, *(one.model_dump(exclude_none=True) for one in response.output)]
            new = [
                {"type": "function_call_output", "call_id": one.call_id, "output": "sunny"}
                for one in response.output
                if one.type == "function_call"
            ] or [{"role": "user", "content": f"And {turn}?"}]


named_loop = partial(responses_loop, named=True)


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
    with session(embedded_gateway(seed=3, fault_rates=fault_rates)) as talk:
        loop(talk, streamed=streamed)
    assert talk.routes == Counter(MITO=1, TITO=TURNS - 1)
    for before, after in zip(talk.steps, talk.steps[1:], strict=False):
        assert after.prompt_ids.starts_with(before.ids)


def test_a_tool_runner_sends_the_whole_conversation() -> None:
    """It asks for a `thread` first, of which it would send new messages alone."""

    @anthropic.beta_tool
    def get_weather(city: str = "") -> str:
        """Tell the weather."""
        return f"sunny{city[:0]}"

    with session(embedded_gateway(seed=3, fault_rates=BUSY)) as talk, talk.claude() as client:
        runner = client.beta.messages.tool_runner(
            model="m", max_tokens=200, tools=[get_weather], messages=ASKED, max_iterations=TURNS
        )
        turns = len(list(runner))
    assert turns > 1
    assert talk.routes == Counter(MITO=1, TITO=turns - 1)
    assert [len(step.prompt) for step in talk.steps] == [1 + 2 * turn for turn in range(turns)]


@pytest.mark.parametrize("loop", [chat_loop, anthropic_loop, responses_loop])
def test_every_dialect_asks_the_same(loop: Loop) -> None:
    """The same conversation by another API is sampled after the same ids."""
    found = []
    for taken, streamed in ((loop, True), (chat_loop, False)):
        with session(embedded_gateway(seed=3, fault_rates=BUSY)) as talk:
            taken(talk, streamed=streamed)
        found.append([step.ids.tolist() for step in talk.steps[:2]])
    assert found[0] == found[1]


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_translated_is_a_bad_request(*, stream: bool) -> None:
    block: Any = {"type": "document", "source": {"type": "base64", "data": "x"}}
    tools: Any = {"tools": [WEATHER], "tool_choice": "any", "stream": stream}
    with session(embedded_gateway()) as talk, talk.openai() as client, talk.claude() as claude:
        with pytest.raises(openai.BadRequestError, match="tool_choice") as caught:
            client.chat.completions.create(model="m", messages=ASKED, **tools)
        assert (caught.value.param, caught.value.type) == ("tool_choice", "invalid_request_error")
        with pytest.raises(openai.BadRequestError, match="wait for the answer") as caught:
            client.responses.create(model="m", input=ASK, background=True, stream=stream)
        assert caught.value.param == "background"
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].content\[0\]") as failed:
            claude.messages.create(
                model="m", messages=[{"role": "user", "content": [block]}], max_tokens=9, stream=stream
            )
        assert failed.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (OverlongError("too long by 7"), "context_length_exceeded", "BadRequestError"),
        (ServerError("it broke"), "engine_failed", "InternalServerError"),
        (UnreachableError("gone"), "engine_unreachable", "InternalServerError"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_engine_s_errors_are_the_sdk_s_own(error: EngineError, code: str, kind: str) -> None:
    failing = scripted_gateway(Scripted(raises=[error] * 3))
    with session(failing) as talk, talk.openai() as client, talk.claude() as claude:
        with pytest.raises(getattr(openai, kind), match=str(error)) as caught:
            client.chat.completions.create(model="m", messages=ASKED)
        assert caught.value.code == code
        with pytest.raises(getattr(openai, kind), match=str(error)):
            client.responses.create(model="m", input=ASK)
        with pytest.raises(getattr(anthropic, kind), match=str(error)):
            claude.messages.create(model="m", messages=ASKED, max_tokens=9)


class Breaking(Scripted):
    """An engine that says something and then fails."""

    async def sample(self, request: SampleRequest) -> Reply:
        assert request.watch is not None
        await request.watch(Delta(ids=(7,), text="Once"))
        raise ServerError("it broke")


def test_an_error_in_a_stream_is_an_error_of_the_sdk() -> None:
    with session(scripted_gateway(Breaking())) as talk, talk.openai() as client, talk.claude() as claude:
        said = list[str | None]()
        chat = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        with pytest.raises(openai.APIError, match="it broke"):
            said.extend(choice.delta.content for chunk in chat for choice in chunk.choices)
        events = list(client.responses.create(model="m", input=ASK, stream=True))
        told = claude.messages.create(model="m", messages=ASKED, max_tokens=9, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="it broke"):
            list(told)
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert (events[-1].response.error.code, events[-1].response.error.message) == ("server_error", "it broke")
    assert "Once" in said
