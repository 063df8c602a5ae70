"""Streamed turns: told as they come, and then the reply that would have come in one piece."""

from __future__ import annotations

from typing import Any, Literal

import attrs
import httpx2
import orjson
import pytest

from tests.io.engines.scripted import Heard
from tests.io.engines.vllm.vllm_server import (
    PROMPT,
    chat_answer,
    chunks,
    completion_answer,
    events,
    generate_answer,
    mocked,
    serving,
    several,
    usage,
)
from tito_core.normalization.canonical import normalize
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    EmptyReplyError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    Sampling,
    ServerError,
    UnreachableError,
    UnsupportedError,
)
from tito_io.engines.vllm import CHAT, COMPLETIONS, GENERATE, TOKENS, VLLM, Notice

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
Way = Literal["messages", "chat", "tokens", "completions", "generate"]
WAYS: tuple[Way, ...] = ("messages", "chat", "tokens", "completions", "generate")
PATHS = {"messages": CHAT, "chat": CHAT, "tokens": TOKENS, "completions": COMPLETIONS, "generate": GENERATE}
CALLED: dict[str, Any] = {
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
}


def answer_of(way: Way, ids: tuple[int, ...] = (7, 8), text: str = "hi", **parts: Any) -> dict[str, Any]:
    """Return the way's whole answer."""
    if way == "completions":
        return completion_answer(ids, text=text, **parts)
    if way == "generate":
        return generate_answer(ids, text=text, **parts)
    return chat_answer(ids, content=text, **parts)


def engine_of(way: Way, answer: Any, **options: Any) -> VLLM:
    """Return an engine that gets this answer by that way."""
    route = "completions" if way == "messages" else way
    return mocked({PATHS[way]: answer}, route=route, **options)[0]


async def asked(engine: VLLM, way: Way, heard: Heard | None = None, **sampling: Any) -> Reply:
    """Ask for a turn."""
    rendering = Rendering(tools=(TOOL,))
    if way == "messages":
        return await engine.from_messages(HELLO, rendering, Sampling(**sampling), watch=heard)
    return await engine.from_ids(PROMPT, Sampling(**sampling), rendering, watch=heard)


def alike(streamed: Reply, whole: Reply) -> None:
    """Demand that two replies say the same; chunks leave out what is null."""
    bare: dict[str, Any] = {"raw": {}, "siblings": (), "message": None}
    assert attrs.evolve(streamed, **bare) == attrs.evolve(whole, **bare)
    assert normalize(streamed.message or {}) == normalize(whole.message or {})
    assert len(streamed.siblings) == len(whole.siblings)
    for one, other in zip(streamed.siblings, whole.siblings, strict=True):
        alike(one, other)


CASES: dict[str, dict[str, Any]] = {
    "a turn": {"ids": (7, 8, 9, 10, 2), "text": "hello"},
    "a stop string": {"ids": (7, 8), "stop_reason": "lo", "text": "hel"},
    "a sentinel": {"ids": (7, 8, 9), "logprobs": (-0.5, -9999.0, None)},
}


@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", WAYS)
async def test_a_streamed_reply_is_the_whole_one(way: Way, case: str, size: int) -> None:
    answer, heard = answer_of(way, **CASES[case]), Heard()
    engine = engine_of(way, serving(answer, size))
    whole = await asked(engine, way, stop=("lo",))
    streamed = await asked(engine, way, heard, stop=("lo",))
    alike(streamed, whole)
    assert heard.ids == streamed.completion_ids == CASES[case]["ids"]
    assert heard.logprobs == streamed.logprobs
    assert heard.text == CASES[case].get("text", "hi")


@pytest.mark.parametrize("way", ["messages", "chat", "tokens"])
async def test_calls_come_in_pieces(way: Way) -> None:
    answer = chat_answer((7, 8, 9), content="", finish_reason="tool_calls", **CALLED)
    found = chunks(answer)
    first = found[1]["choices"][0]["delta"]["tool_calls"][0]
    first["function"] = {"name": "f", "arguments": ""}
    found[2]["choices"][0]["delta"] = {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}
    found[3]["choices"][0]["delta"] = {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}
    heard = Heard()
    reply = await asked(engine_of(way, events(*found)), way, heard)
    assert reply.message is not None
    assert reply.message["tool_calls"] == CALLED["tool_calls"]
    assert (reply.finish_reason, heard.ids) == ("tool_calls", (7, 8, 9))


# A stream that breaks.


@pytest.mark.parametrize("way", WAYS)
async def test_trap_16_an_overlong_prompt_is_told_inside_a_success(way: Way) -> None:
    message = "The decoder prompt (length 2100) is longer than the maximum model length of 2048."
    told = {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}
    with pytest.raises(OverlongError) as caught:
        await asked(engine_of(way, events(told)), way, Heard())
    assert caught.value.partial is None


@pytest.mark.parametrize("way", WAYS)
async def test_of_several_turns_those_that_had_ended_are_not_aborted(way: Way) -> None:
    """A turn that is resumed past its stop token would have ids after it."""
    ended = answer_of(way, (5, 6), "END", stop_reason="END")
    answer = several(ended, answer_of(way, (4, 4, 4), "yy", finish_reason=None))
    with pytest.raises(AbortedError, match="aborted it") as caught:
        await asked(engine_of(way, events(*chunks(answer))), way, Heard(), n=2)
    found = caught.value.partial
    assert found is not None
    turns = [(one.completion_ids, one.finish_reason, one.stop_reason) for one in (found, *found.siblings)]
    assert turns == [((5, 6), "stop", "END"), ((4, 4, 4), "abort", None)]


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_that_the_engine_failed_at_holds_what_came(way: Way) -> None:
    answer = answer_of(way, (7, 8), finish_reason="error")
    with pytest.raises(ServerError, match="failed while it sampled") as caught:
        await asked(engine_of(way, serving(answer)), way, Heard())
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == (7, 8)


@pytest.mark.parametrize("way", WAYS)
async def test_trap_22_what_came_before_a_break_is_kept_for_every_turn(way: Way) -> None:
    answer = several(answer_of(way, (7, 8, 9)), answer_of(way, (5, 6), "x"))
    found = chunks(answer)[:-2]
    with pytest.raises(UnreachableError) as caught:
        await asked(engine_of(way, events(*found, done=False)), way, Heard(), n=2)
    reply = caught.value.partial
    assert reply is not None
    assert [one.completion_ids for one in (reply, *reply.siblings)] == [(7, 8), (5, 6)]
    assert reply.usage.completion_tokens == 4


# Chunks that do not hold together.


@pytest.mark.parametrize("way", WAYS)
async def test_trap_02_a_chunk_that_lost_its_log_probabilities_is_missed(way: Way) -> None:
    found = chunks(answer_of(way, (7, 8, 9, 10)))
    found[2]["choices"][0]["logprobs"] = None
    heard = Heard()
    with pytest.raises(InvalidReplyError, match="3 log-probabilities for 4") as caught:
        await asked(engine_of(way, events(*found)), way, heard)
    reply = caught.value.partial
    assert reply is not None
    assert (reply.completion_ids, reply.logprobs) == ((7, 8, 9, 10), None)
    assert [delta.logprobs for delta in heard.deltas].count(None) == 1


@pytest.mark.parametrize("way", ["messages", "chat", "tokens"])
@pytest.mark.parametrize("version", ["0.12.0", "0.30.1"])
async def test_traps_01_and_02_chat_is_not_streamed_where_ids_get_lost(way: Way, version: str) -> None:
    answer, heard = answer_of(way, (7, 8, 9)), Heard()
    known = {PATHS[way]: answer, "/version": {"version": version if way != "chat" else "0.30.1"}}
    engine, mock = mocked(known, route="completions" if way == "messages" else way)
    reply = await asked(engine, way, heard)
    assert "stream" not in mock.bodies(PATHS[way])[0]
    assert reply.notices == (Notice.WHOLE,)
    assert engine.notices == {Notice.WHOLE: 1}
    assert heard.deltas == [Delta(ids=(7, 8, 9), logprobs=(-0.5,) * 3, text="hi")]


@pytest.mark.parametrize("way", WAYS)
async def test_trap_03_a_chunk_without_ids_may_repeat_log_probabilities(way: Way) -> None:
    answer = answer_of(way, (7, 8, 9))
    found = chunks(answer)
    last = max(place for place, chunk in enumerate(found) if chunk["choices"])
    again = {**found[last]["choices"][0], "token_ids": [], "logprobs": answer["choices"][0]["logprobs"]}
    again = {**again, "finish_reason": None, "weight_versions": None}
    found.insert(last, {**found[last], "choices": [again]})
    heard = Heard()
    reply = await asked(engine_of(way, events(*found)), way, heard)
    assert reply.logprobs == heard.logprobs == (-0.5,) * 3


@pytest.mark.parametrize("way", WAYS)
async def test_trap_03_of_repeated_log_probabilities_the_last_are_a_chunks_own(way: Way) -> None:
    values = (-0.25, -0.5, -0.75)
    answer = answer_of(way, (7, 8, 9), logprobs=values)
    found = chunks(answer)
    last = max(place for place, chunk in enumerate(found) if chunk["choices"])
    found[last]["choices"][0]["logprobs"] = answer["choices"][0]["logprobs"]
    heard = Heard()
    reply = await asked(engine_of(way, events(*found)), way, heard)
    assert reply.logprobs == heard.logprobs == values


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chunk", [{"choices": []}, {"choices": None}, {}])
async def test_a_stream_without_a_turn_is_empty(way: Way, chunk: dict[str, Any]) -> None:
    with pytest.raises(EmptyReplyError):
        await asked(engine_of(way, events({**chunk, "usage": usage(3, 0)})), way, Heard())


@pytest.mark.parametrize("content", [b"data: {", b"data: [1]\n\n", b"data: nonsense\n\n"])
async def test_an_event_that_is_no_object_is_refused(content: bytes) -> None:
    response = httpx2.Response(200, content=content + b"\n\n", headers={"content-type": "text/event-stream"})
    with pytest.raises(InvalidReplyError, match="an event is no"):
        await asked(engine_of("completions", response), "completions", Heard())


async def test_an_answer_in_one_piece_is_no_stream() -> None:
    with pytest.raises(InvalidReplyError, match="a stream was requested, and application/json came"):
        await asked(engine_of("completions", completion_answer()), "completions", Heard())


@pytest.mark.parametrize("way", WAYS)
async def test_trap_41_a_line_may_be_of_any_length(way: Way) -> None:
    prompt = list(range(300_000))
    answer = answer_of(way, (7, 8), prompt=prompt)
    card = {"data": [{"id": "m", "max_model_len": 400_000}]}
    route = "completions" if way == "messages" else way
    engine, _ = mocked({PATHS[way]: serving(answer), "/v1/models": card}, route=route)
    if way == "messages":
        reply = await engine.from_messages(HELLO, Rendering(), Sampling(), watch=Heard())
    else:
        reply = await engine.from_ids(prompt, Sampling(), watch=Heard())
    assert len(reply.prompt_ids) == 300_000
    assert reply.completion_ids == (7, 8)


# Leaving.


async def test_what_is_old_is_streamed_where_it_can_be() -> None:
    known = {COMPLETIONS: serving(completion_answer()), "/version": {"version": "0.10.2"}}
    engine, mock = mocked(known)
    reply = await asked(engine, "completions", Heard())
    assert reply.notices == ()
    assert mock.bodies(COMPLETIONS)[0]["stream"] is True
    assert not mock.bodies("/version"), "it needs no version"
    assert orjson.dumps(reply.raw)


async def test_the_generate_route_is_not_streamed_before_it_could_be() -> None:
    known = {GENERATE: generate_answer(), "/version": {"version": "0.19.1"}}
    engine, mock = mocked(known, route="generate")
    reply = await asked(engine, "generate", Heard())
    assert (reply.completion_ids, reply.notices) == ((7, 8), (Notice.WHOLE,))
    assert "stream" not in mock.bodies(GENERATE)[0]


async def test_a_version_that_takes_no_ids_by_chat_is_told() -> None:
    engine, mock = mocked({CHAT: chat_answer(), "/version": {"version": "0.26.3"}}, route="chat")
    with pytest.raises(UnsupportedError, match=r"0\.26\.3 takes no ids by chat"):
        await engine.from_ids(PROMPT, Sampling())
    assert not mock.bodies(CHAT)
