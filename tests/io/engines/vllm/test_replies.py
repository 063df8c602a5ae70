"""What becomes of a vLLM server's answers: a reply in which everything agrees, or an error that holds it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Literal

import httpx2
import pytest

from tests.io.engines.vllm.vllm_server import PROMPT, chat_answer, completion_answer, mocked
from tito_io.engines.protocol import (
    EmptyReplyError,
    InvalidReplyError,
    Rendering,
    Reply,
    Sampling,
    ServerError,
)
from tito_io.engines.vllm import CHAT, COMPLETIONS, VLLM

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
Way = Literal["messages", "chat", "completions"]
WAYS: tuple[Way, ...] = ("messages", "chat", "completions")
CALL = '{"name": "f", "arguments": {"a":  1}}'


async def asked(engine: VLLM, way: Way, **sampling: Any) -> Reply:
    """Ask for a turn; `engine` must have the way's route."""
    if way == "messages":
        return await engine.from_messages(HELLO, Rendering(), Sampling(**sampling))
    return await engine.from_ids(PROMPT, Sampling(**sampling))


def answering(way: Way, answer: Any, **options: Any) -> VLLM:
    """Return an engine that gets this answer."""
    path = COMPLETIONS if way == "completions" else CHAT
    return mocked({path: answer}, route="chat" if way == "chat" else "completions", **options)[0]


def answer_of(way: Way, **parts: Any) -> dict[str, Any]:
    """Return the way's answer."""
    return completion_answer(**parts) if way == "completions" else chat_answer(**parts)


async def test_the_servers_message_is_kept_as_it_parsed_it() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]
    answer = chat_answer(content=None, reasoning="hm", tool_calls=calls, finish_reason="tool_calls")
    reply = await asked(answering("chat", answer), "chat")
    assert reply.message == answer["choices"][0]["message"]
    assert (reply.finish_reason, reply.text) == ("tool_calls", "")


@pytest.mark.parametrize("way", WAYS)
async def test_what_was_cached_is_told(way: Way) -> None:
    answer = answer_of(way)
    answer["usage"]["prompt_tokens_details"] = {"cached_tokens": 2}
    assert (await asked(answering(way, answer), way)).usage.cached_tokens == 2


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_of_no_ids_is_a_turn(way: Way) -> None:
    answer = answer_of(way, ids=(), finish_reason="abort")
    answer["choices"][0]["logprobs"] = None
    reply = await asked(answering(way, answer), way)
    assert (reply.completion_ids, reply.logprobs, reply.truncated) == ((), (), True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("said", "kept"),
    [("length", "length"), ("abort", "abort"), ("repetition", "abort"), ("cancelled", "abort")],
)
async def test_a_turn_without_its_stop_is_truncated(way: Way, said: str, kept: str) -> None:
    reply = await asked(answering(way, answer_of(way, finish_reason=said)), way)
    assert (reply.finish_reason, reply.truncated) == (kept, True)


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_that_the_engine_failed_at_is_none(way: Way) -> None:
    with pytest.raises(ServerError, match="failed while it sampled"):
        await asked(answering(way, answer_of(way, finish_reason="error")), way)


# Each breaks one thing in an answer, and says what the error must tell.

Breaking = Callable[[dict[str, Any], dict[str, Any]], object]

BROKEN: Mapping[str, tuple[Breaking, str]] = {
    "no finish reason": (lambda _, choice: choice.update(finish_reason=None), "`finish_reason` is null"),
    "an unknown finish reason": (
        lambda _, choice: choice.update(finish_reason="bored"),
        "unknown reason, 'bored'",
    ),
    "no ids": (lambda _, choice: choice.update(token_ids=None), "`token_ids` is null or missing"),
    "ids as text": (lambda _, choice: choice.update({"token_ids": "7 8"}), "`token_ids` is str"),
    "a fraction": (lambda _, choice: choice.update(token_ids=[7, 8.5]), "other than whole numbers"),
    "a truth": (lambda _, choice: choice.update(token_ids=[7, True]), "other than whole numbers"),
    "a negative id": (lambda _, choice: choice.update(token_ids=[7, -1]), "negative id -1"),
    "an id too few": (
        lambda _, choice: choice.update(token_ids=[7]),
        "2 log-probabilities for 1 sampled ids",
    ),
    "an id too many": (lambda _, choice: choice.update(token_ids=[7, 8, 9]), "2 log-probabilities for 3"),
    "no log-probabilities": (lambda _, choice: choice.update(logprobs=None), "is null or missing"),
    "more counted": (
        lambda body, _: body["usage"].update(completion_tokens=3),
        "3 counted sampled ids for 2",
    ),
    "fewer counted": (
        lambda body, _: body["usage"].update(completion_tokens=1),
        "1 counted sampled ids for 2",
    ),
    "a longer prompt": (lambda body, _: body["usage"].update(prompt_tokens=4), "4 counted prompt ids for 3"),
    "no usage": (lambda body, _: body.pop("usage"), "`usage` is null or missing"),
    "no counts": (lambda body, _: body["usage"].clear(), "`prompt_tokens` is null or missing"),
    "two choices": (lambda body, choice: body["choices"].append(choice), "2 choices"),
    "a choice that is none": (lambda body, _: body.update(choices=["hi"]), "`choice` is str"),
    "choices that are none": (lambda body, _: body.update(choices="hi"), "`choices` is str"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("broken", BROKEN)
async def test_an_answer_that_does_not_hold_together_is_refused_whole(way: Way, broken: str) -> None:
    answer = answer_of(way)
    breaking, told = BROKEN[broken]
    breaking(answer, answer["choices"][0])
    sent = copy.deepcopy(answer)
    with pytest.raises(InvalidReplyError, match=told) as caught:
        await asked(answering(way, answer), way)
    assert caught.value.answer is not None
    assert (caught.value.answer.status, caught.value.answer.body) == (200, sent)


@pytest.mark.parametrize("way", ["chat", "completions"])
async def test_a_server_that_repeats_no_ids_is_found_out(way: Way) -> None:
    answer = answer_of(way)
    (answer if way == "chat" else answer["choices"][0]).pop("prompt_token_ids")
    with pytest.raises(InvalidReplyError, match="`prompt_token_ids` is null or missing"):
        await asked(answering(way, answer), way)


@pytest.mark.parametrize("way", WAYS)
async def test_a_sampled_id_of_more_than_32_bits_is_refused_where_the_vocabulary_is_unknown(way: Way) -> None:
    with pytest.raises(InvalidReplyError, match="holds the id 4294967296: an id is a whole number from 0 to"):
        await asked(answering(way, answer_of(way, ids=(7, 2**32))), way)


@pytest.mark.parametrize("way", WAYS)
async def test_tokens_that_name_ids_must_name_the_sampled_ones(way: Way) -> None:
    answer = answer_of(way, ids=(7, 8))
    logprobs = answer["choices"][0]["logprobs"]

    def named(*ids: int) -> None:
        tokens = [f"token_id:{index}" for index in ids]
        for entry, token in zip(logprobs.get("content", ()), tokens, strict=False):
            entry["token"] = token
        logprobs.update({"tokens": tokens} if way == "completions" else {})

    named(7, 8)
    assert (await asked(answering(way, answer), way)).completion_ids == (7, 8)
    named(7, 9)
    with pytest.raises(InvalidReplyError, match="belong to other ids"):
        await asked(answering(way, answer), way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("empty", [{"choices": []}, {"choices": None}, {}])
async def test_an_answer_without_a_turn_is_empty(way: Way, empty: dict[str, Any]) -> None:
    answer = answer_of(way)
    del answer["choices"]
    with pytest.raises(EmptyReplyError, match="no choice"):
        await asked(answering(way, {**answer, **empty}), way)


@pytest.mark.parametrize("way", ["messages", "chat"])
@pytest.mark.parametrize(
    "message", [{"content": None}, {"content": None, "reasoning": ""}, {"content": None, "tool_calls": []}]
)
async def test_a_message_that_says_nothing_is_empty(way: Way, message: dict[str, Any]) -> None:
    with pytest.raises(EmptyReplyError, match="no content, reasoning or tool call"):
        await asked(answering(way, chat_answer(ids=(), **message)), way)


@pytest.mark.parametrize("way", ["messages", "chat"])
async def test_a_turn_that_sampled_only_its_end_is_a_turn(way: Way) -> None:
    """A real vLLM with a reasoning parser sends null for its content."""
    reply = await asked(answering(way, chat_answer(ids=(7,), content=None)), way)
    assert reply.completion_ids == (7,)
    assert reply.message is not None
    assert reply.message["content"] == ""


@pytest.mark.parametrize("way", ["messages", "chat"])
@pytest.mark.parametrize("message", [None, "hi", {"role": "user", "content": "hi"}])
async def test_a_message_must_be_an_assistants(way: Way, message: Any) -> None:
    answer = chat_answer()
    answer["choices"][0]["message"] = message
    with pytest.raises(InvalidReplyError):
        await asked(answering(way, answer), way)


@pytest.mark.parametrize("content", [b"", b"{", b'{"choices": [NaN]}', b"<html>", b"\xff"])
async def test_an_answer_that_is_no_json_is_refused(content: bytes) -> None:
    engine = answering("completions", httpx2.Response(200, content=content))
    with pytest.raises(InvalidReplyError, match="not JSON") as caught:
        await asked(engine, "completions")
    assert caught.value.answer is not None
    assert caught.value.answer.body == content


# The completions route has no message: it is parsed from the text.


async def completed(ids: tuple[int, ...], text: str, *, tools: bool = True, **parts: Any) -> Reply:
    """Return the reply to a completion."""
    prompt = parts.get("prompt", PROMPT)
    engine, _ = mocked({COMPLETIONS: completion_answer(ids, text=text, **parts)})
    return await engine.from_ids(
        prompt, Sampling(), Rendering(tools=({"type": "function"},) if tools else ())
    )


async def test_a_call_between_sampled_tags_is_a_call() -> None:
    reply = await completed((90, 65, 91, 92, 66, 93, 2), f"<think>A</think><tool_call>{CALL}</tool_call>")
    assert reply.finish_reason == "tool_calls"
    assert reply.message == {
        "role": "assistant",
        "content": "",
        "reasoning": "A",
        "tool_calls": [
            {"id": "xvgpih677", "type": "function", "function": {"name": "f", "arguments": '{"a":  1}'}}
        ],
    }


async def test_tags_that_were_spelled_out_are_text() -> None:
    text = f"<tool_call>{CALL}</tool_call>"
    reply = await completed(tuple(map(ord, text)), text)
    assert reply.message == {"role": "assistant", "content": text}
    assert reply.finish_reason == "stop"


async def test_sampled_tags_are_told_from_those_spelled_out_between_them() -> None:
    spelled = "Write <tool_call> so: "
    ids = (*map(ord, spelled), 92, *map(ord, CALL), 93)
    reply = await completed(ids, f"{spelled}<tool_call>{CALL}</tool_call>")
    assert reply.message is not None
    assert reply.message["content"] == spelled
    assert reply.message["tool_calls"][0]["function"]["name"] == "f"


async def test_a_stop_string_may_cut_a_tag_off() -> None:
    ids = (*map(ord, "<think>"), 92, *map(ord, CALL), 93)
    reply = await completed(ids, f"<think><tool_call>{CALL}", stop_reason="</tool_call>")
    assert reply.message is not None
    assert reply.message["content"] == "<think>"
    assert reply.message["tool_calls"][0]["function"]["name"] == "f"


async def test_the_server_is_not_asked_for_texts_that_are_plain() -> None:
    engine, mock = mocked(
        {COMPLETIONS: completion_answer((92, 66, 93), text=f"<tool_call>{CALL}</tool_call>")}
    )
    await engine.from_ids(PROMPT, Sampling())
    assert not mock.bodies("/detokenize")


@pytest.mark.parametrize("prompt", [(1, 90), (1, 90, 10), (1, 90, 11)])
async def test_a_turn_that_the_prompt_began_thinking_goes_on_thinking(prompt: tuple[int, ...]) -> None:
    reply = await completed((65, 91, 66), "A</think>\n\nB", prompt=prompt)
    assert reply.message == {"role": "assistant", "content": "B", "reasoning": "A"}
    cut = await completed((65, 66), "AB", prompt=prompt, finish_reason="length")
    assert cut.message == {"role": "assistant", "content": "", "reasoning": "AB"}


async def test_without_tools_nothing_is_called() -> None:
    text = f"<tool_call>{CALL}</tool_call>"
    reply = await completed((92, 66, 93), text, tools=False)
    assert reply.message == {"role": "assistant", "content": text}
    assert reply.finish_reason == "stop"


async def test_a_cut_turn_stays_cut_whatever_it_called() -> None:
    reply = await completed((92, 66, 93), f"<tool_call>{CALL}</tool_call>", finish_reason="length")
    assert reply.message is not None
    assert reply.message["tool_calls"]
    assert (reply.finish_reason, reply.truncated) == ("length", True)


# vLLM's chat route says `tool_calls` of a turn with a call even where it was cut off after it.

CALLED: dict[str, Any] = {
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
}


async def ended(*answers: dict[str, Any], limit: int = 3) -> list[Reply]:
    """Return the replies to turns of at most `limit` ids."""
    coming = iter(answers)
    engine, _ = mocked({CHAT: lambda *_: httpx2.Response(200, json=next(coming))}, route="chat")
    return [await engine.from_ids(PROMPT, Sampling(max_tokens=limit)) for _ in answers]


async def test_a_call_at_the_limit_is_cut_where_its_last_id_ends_no_turn() -> None:
    honest, cut = chat_answer((7, 2)), chat_answer((7, 8, 9), finish_reason="tool_calls", **CALLED)
    assert [reply.finish_reason for reply in await ended(honest, cut)] == ["stop", "length"]


@pytest.mark.parametrize(
    "answer",
    [
        chat_answer((7, 8, 2), finish_reason="tool_calls", **CALLED),
        chat_answer((7, 8, 9), finish_reason="tool_calls", stop_reason=9, **CALLED),
        chat_answer((7, 8), finish_reason="tool_calls", **CALLED),
    ],
    ids=["it ends as others do", "the server names its stop", "it had room left"],
)
async def test_a_call_that_ended_its_turn_is_no_cut(answer: dict[str, Any]) -> None:
    assert [reply.finish_reason for reply in await ended(chat_answer((7, 2)), answer)] == [
        "stop",
        "tool_calls",
    ]


async def test_while_no_end_is_known_the_servers_word_stands() -> None:
    cut = chat_answer((7, 8, 9), finish_reason="tool_calls", **CALLED)
    named = chat_answer((7, 6), stop_reason=6)
    assert [reply.finish_reason for reply in await ended(cut, named, cut)] == [
        "tool_calls",
        "stop",
        "tool_calls",
    ]
