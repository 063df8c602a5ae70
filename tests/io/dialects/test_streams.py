"""Streams add up to whole answers, whatever the split, and show nothing that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import orjson
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response
from pydantic import TypeAdapter

from tito_io.dialects import (
    Anthropic,
    Chat,
    Dialect,
    Google,
    ParsedRequest,
    Responses,
    StreamReading,
    TurnAnswer,
)
from tito_io.dialects.protocol import StreamMismatchError
from tito_io.dialects.wire import dumps
from tito_io.engines.protocol import Delta
from tito_io.engines.replies.chunks import Assembly
from tito_io.engines.replies.hermes import CALL, CALLED, THINK, THINKS, THOUGHT, THOUGHTS

from .dialect_turns import (
    CUTS,
    GOOD_CALL,
    HELLO,
    STAMP,
    TOOL,
    Sampled,
    Token,
    answer,
    apart,
    events,
    messages,
    sampled,
    spelled,
    streamed,
    together,
    token,
)

CHAT, ANTHROPIC, RESPONSES, GOOGLE = Chat(), Anthropic(), Responses(), Google(streaming=True)
DIALECTS: tuple[Dialect, ...] = (CHAT, ANTHROPIC, RESPONSES, GOOGLE)
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
CALLING = (*token(CALL), *spelled(GOOD_CALL), *token(CALLED))


def asking(dialect: Dialect, *, tools: bool = False) -> ParsedRequest:
    """Return a plain request with everything told that can be told."""
    if dialect is CHAT:
        more = {"tools": [TOOL]} if tools else {}
        ids = {"return_token_ids": True, "logprobs": True}
        return CHAT.parse({"messages": [HELLO], "stream": True, **ids, **more})
    if dialect is ANTHROPIC:
        more = {"tools": [{"name": "look", "input_schema": {"type": "object"}}]} if tools else {}
        return ANTHROPIC.parse({"messages": [HELLO], "max_tokens": 9, "stream": True, **more})
    if dialect is GOOGLE:
        more = {"tools": [{"functionDeclarations": [{"name": "look"}]}]} if tools else {}
        config = {"responseLogprobs": True}
        return GOOGLE.parse({"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": config, **more})
    more = {"tools": [{"type": "function", **TOOL["function"]}]} if tools else {}
    return RESPONSES.parse({"input": "hi", "include": ["reasoning.encrypted_content"], **more})


def assembled(dialect: Dialect, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the body that the events of a stream amount to."""
    if dialect is CHAT:
        made = Assembly()
        for chunk in found:
            made.add(chunk)
        return made.body()
    if dialect is ANTHROPIC:
        snapshot = None
        bufs: dict[int, bytes] = {}
        for one in found:
            if one["type"] not in ("message_stop", "ping"):
                event = EVENT.validate_python(one)
                snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=bufs)
        assert snapshot is not None
        return snapshot.to_dict()
    if dialect is GOOGLE:
        return parts_added_up(found)
    return items_added_up(found)


def parts_added_up(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the answer with the parts of all; texts of a kind that follow each other are one."""
    parts: list[dict[str, Any]] = []
    for part in [part for one in found for part in one["candidates"][0]["content"]["parts"]]:
        same_kind = parts and "text" in part and {**parts[-1], "text": ""} == {**part, "text": ""}
        if same_kind:
            parts[-1]["text"] += part["text"]
        else:
            parts.append(dict(part))
    (candidate,) = found[-1]["candidates"]
    content = {**candidate["content"], "parts": parts}
    return {**found[-1], "candidates": [{**candidate, "content": content}]}


def items_added_up(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the final response, once its items are those that the events before it amount to."""
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    items: dict[int, dict[str, Any]] = {}
    for one in found:
        place, kind = one.get("output_index", -1), one["type"]
        if kind == "response.output_item.added":
            assert place == len(items)
            items[place] = one["item"]
        elif kind == "response.content_part.added":
            items[place]["content"].append(one["part"])
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            items[place]["content"][one["content_index"]]["text"] += one["delta"]
        elif kind == "response.function_call_arguments.delta":
            items[place]["arguments"] += one["delta"]
        elif kind == "response.output_item.done":
            same = {**items[place], "status": one["item"]["status"]}
            same["encrypted_content"] = one["item"].get("encrypted_content")
            assert same == {"encrypted_content": None, **one["item"]}
            items[place] = one["item"]
    final: dict[str, Any] = found[-1]["response"]
    assert final["output"] == [items[place] for place in sorted(items)]
    return final


def adds_up(
    dialect: Dialect, asked: ParsedRequest, deltas: Iterator[Delta], end: TurnAnswer, reading: StreamReading
) -> None:
    """Demand that a stream is the whole answer in pieces."""
    streaming = assembled(dialect, streamed(dialect, asked, deltas, end, reading))
    whole = orjson.loads(dumps(dialect.answer_body(asked, end)))
    assert comparable(dialect, streaming) == comparable(dialect, whole)


def comparable(dialect: Dialect, body: dict[str, Any]) -> dict[str, Any]:
    """Return what a whole answer and a stream both tell."""
    if dialect is not CHAT:
        return {name: value for name, value in body.items() if value is not None}
    return {
        "prompt": body["prompt_token_ids"],
        "choices": [
            {
                "message": {name: one for name, one in choice["message"].items() if one is not None},
                "scores": (choice.get("logprobs") or {}).get("content") or [],
                "ids": choice.get("token_ids") or [],
                "end": (choice["finish_reason"], choice["stop_reason"]),
            }
            for choice in body["choices"]
        ],
    }


@given(turn=sampled(), cuts=CUTS, tools=st.booleans(), hidden=st.booleans())
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_what_is_streamed_adds_up_to_the_whole(
    dialect: Dialect, turn: Sampled, cuts: list[int], *, tools: bool, hidden: bool
) -> None:
    asked, end = asking(dialect, tools=tools), answer(turn.message(tools=tools), turn.ids)
    reading = StreamReading(thinking=turn.thinking, hidden_reasoning=hidden)
    adds_up(dialect, asked, together(turn.tokens, cuts), end, reading)


@given(turn=sampled(), cuts=CUTS, text_cuts=CUTS, message=st.none() | messages(), thinking=st.booleans())
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_stream_is_right_or_fails_whatever_the_deltas_say(
    dialect: Dialect,
    turn: Sampled,
    cuts: list[int],
    text_cuts: list[int],
    message: dict[str, Any] | None,
    *,
    thinking: bool,
) -> None:
    asked, end = asking(dialect, tools=True), answer(message or turn.message(tools=True), turn.ids)
    try:
        adds_up(dialect, asked, apart(turn, cuts, text_cuts), end, StreamReading(thinking=thinking))
    except StreamMismatchError:
        pass
    except AssertionError:
        assert late(dialect, asked, apart(turn, cuts, text_cuts), end, StreamReading(thinking=thinking))


def late(
    dialect: Dialect, asked: ParsedRequest, deltas: Iterator[Delta], end: TurnAnswer, reading: StreamReading
) -> bool:
    """Tell whether the only difference is a thought that no delta told of, and that came after the text."""
    streaming = assembled(dialect, streamed(dialect, asked, deltas, end, reading))
    whole = orjson.loads(dumps(dialect.answer_body(asked, end)))
    said, right = (said_in(dialect, body) for body in (streaming, whole))
    parts = [
        [{key: value for key, value in one.items() if key != "status"} for one in some]
        for some in (said, right)
    ]
    swapped = [parts[1][1], parts[1][0], *parts[1][2:]]
    thought = swapped[1].get("thought") or swapped[1].get("type") in {"thinking", "reasoning"}
    return parts[0] == swapped and thought


def said_in(dialect: Dialect, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of an answer."""
    if dialect is GOOGLE:
        parts: list[dict[str, Any]] = body["candidates"][0]["content"]["parts"]
        return parts
    name = "content" if dialect is ANTHROPIC else "output"
    return list(body[name])


@given(message=messages(), finish=st.sampled_from(("stop", "length")))
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_turn_that_came_whole_is_streamed_too(
    dialect: Dialect, message: dict[str, Any], finish: str
) -> None:
    end = answer(message, finish_reason=finish)
    adds_up(dialect, asking(dialect, tools=True), iter(()), end, StreamReading(buffered=True))


def test_a_chat_streams_reasoning_content_and_each_call_in_chunks_of_their_own() -> None:
    """LlamaIndex reads the first call of a chunk alone, gptme puts content before reasoning of a chunk."""
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}} for name in "abc"
    ]
    end = answer({"role": "assistant", "reasoning": "hm", "content": "So", "tool_calls": calls})
    found = streamed(CHAT, asking(CHAT, tools=True), iter(()), end)
    deltas = [choice["delta"] for one in found for choice in one["choices"]]
    assert [one["tool_calls"] for one in deltas if "tool_calls" in one] == [
        [{"index": place, **call}] for place, call in enumerate(calls)
    ]
    kinds = [[name for name in one if name != "reasoning_content"] for one in deltas]
    assert kinds == [["role"], ["reasoning"], ["content"], *[["tool_calls"]] * 3, []]


def shown(dialect: Dialect, raw: bytes) -> list[str]:
    """Return the content in some events."""
    found = events(raw)
    if dialect is CHAT:
        return [
            choice["delta"]["content"]
            for one in found
            for choice in one["choices"]
            if "content" in choice["delta"]
        ]
    if dialect is ANTHROPIC:
        return [one["delta"]["text"] for one in found if one.get("delta", {}).get("type") == "text_delta"]
    if dialect is GOOGLE:
        parts = [part for one in found for part in one["candidates"][0]["content"]["parts"]]
        return [part["text"] for part in parts if "text" in part and not part.get("thought")]
    return [one["delta"] for one in found if one["type"] == "response.output_text.delta"]


def contents(
    dialect: Dialect, deltas: list[Delta], *, tools: bool, reading: StreamReading
) -> list[list[str]]:
    """Return the content in the events of each delta."""
    stream = dialect.stream(asking(dialect, tools=tools), STAMP)
    stream.reading = reading
    stream.start()
    return [shown(dialect, stream.delta(delta)) for delta in deltas]


def each(tokens: list[Token]) -> list[Delta]:
    """Return a delta for each id."""
    return list(together(tokens, [1] * 90))


PLAIN = [Delta(ids=(9,), text=text) for text in ("It", " is", " <b>", " so")]
THOUGHTFUL = [*token(THINK), *spelled("hm\n"), *token(THOUGHT), *spelled("\n\nSo")]
OPENED = [*spelled("hm"), *token(THOUGHT), *spelled("So")]
LATE_CALL = [*spelled("So:\n"), *CALLING]
COMMENTARY = spelled(" to=functions.f<|channel|>commentary<|message|>{}")
FINAL = spelled("<|channel|>final<|message|>x")
SPELLED = [*spelled(f"a {THOUGHT} b"), *token(THOUGHT), *spelled("So")]
CERTAIN: dict[str, tuple[list[Delta], bool, bool, list[str] | str]] = {
    "plain": (PLAIN, False, False, ["It", " is", " <b>", " so"]),
    "plain beside tools": (PLAIN, True, False, ["It", " is", " <b>", " so"]),
    "behind a thought": (each(THOUGHTFUL), True, False, [*[""] * 7, "S", "o"]),
    "behind a thought that the prompt opened": (each(OPENED), False, True, ["", "", "", "S", "o"]),
    "before a call": (each(LATE_CALL), True, False, ["S", "o", ":"]),
    "a call's markup without tools": (each(LATE_CALL), False, False, f"So:\n{CALL}{GOOD_CALL}{CALLED}"),
    "harmony's header of a call": (each(COMMENTARY), False, False, ""),
    "harmony's header of an answer": (each(FINAL), False, False, ""),
    "letters that spell a tag": (each(SPELLED), False, True, ""),
}
"""Deltas, whether there are tools, whether the prompt left a thought open, and the content that is certain.

That is a list with what becomes certain with each delta, or one text of all of them."""


@pytest.mark.parametrize("name", CERTAIN)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_content_is_told_as_soon_as_it_is_certain(dialect: Dialect, name: str) -> None:
    deltas, tools, thinking, certain = CERTAIN[name]
    found = contents(dialect, deltas, tools=tools, reading=StreamReading(thinking=thinking))
    texts = list(map("".join, found))
    if isinstance(certain, str):
        assert "".join(texts) == certain
    else:
        assert texts == certain + [""] * (len(texts) - len(certain))


@pytest.mark.parametrize(
    "turn",
    [
        Sampled((*token(THINK), *spelled("\nhm\n\n"), *token(THOUGHT), *spelled("\n\nSo\n")), thinking=False),
        Sampled((*spelled("hm\n"), *token(THOUGHT), *spelled("So")), thinking=True),
        Sampled((*token(THOUGHT), *spelled("\n\nSo")), thinking=False),
        Sampled((*spelled("So\n\n"), *CALLING), thinking=False),
        Sampled((*spelled(" \n"), *CALLING), thinking=False),
        Sampled((*token(THINK), *spelled("So\n"), *CALLING, *spelled("Yes")), thinking=False),
        Sampled((*token(THINK), *token(THINK), *spelled("hm"), *token(THOUGHT)), thinking=False),
        Sampled((*spelled(" "), *token(THINK), *spelled("hm"), *token(THOUGHT)), thinking=True),
        Sampled((*token(THINKS[1]), *spelled("hm"), *token(THOUGHTS[1]), *spelled("So")), thinking=False),
        Sampled(tuple(SPELLED), thinking=True),
    ],
    ids=["own", "opened", "nothing", "call", "blank", "endless", "twice", "again", "mistral", "spelled"],
)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_what_belongs_to_the_template_is_not_told(dialect: Dialect, turn: Sampled) -> None:
    deltas, end = together(turn.tokens, [1] * 90), answer(turn.message(tools=True), turn.ids)
    adds_up(dialect, asking(dialect, tools=True), deltas, end, StreamReading(thinking=turn.thinking))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_thoughts_that_no_delta_tells_of_come_first_where_that_is_said(dialect: Dialect) -> None:
    end = answer({"role": "assistant", "content": "So", "reasoning": "hm"})
    deltas = [Delta(ids=(7, 7)), Delta(ids=(8,), text="So")]
    end = attrs.evolve(
        end, choices=(attrs.evolve(end.choices[0], completion_ids=(7, 7, 8), logprobs=(-0.5,) * 3),)
    )
    adds_up(dialect, asking(dialect), iter(deltas), end, StreamReading(hidden_reasoning=True))
    if dialect is not CHAT:
        assert late(dialect, asking(dialect), iter(deltas), end, StreamReading())


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_what_cannot_be_made_right_is_an_error(dialect: Dialect) -> None:
    stream = dialect.stream(asking(dialect), STAMP)
    stream.delta(Delta(ids=(7,), text="No"))
    with pytest.raises(StreamMismatchError, match="does not begin with what was streamed"):
        stream.finish(answer({"role": "assistant", "content": "Yes"}))


def test_ids_that_were_not_sampled_are_an_error() -> None:
    stream = CHAT.stream(asking(CHAT), STAMP)
    stream.delta(Delta(ids=(9,), text=""))
    with pytest.raises(StreamMismatchError, match="ids"):
        stream.finish(answer({"role": "assistant", "content": "Yes"}))


def test_several_turns_are_told_side_by_side() -> None:
    end = answer({"role": "assistant", "content": "ab"})
    other = attrs.evolve(
        end.choices[0], message={"role": "assistant", "content": "cd"}, completion_ids=(9,), logprobs=(None,)
    )
    end = attrs.evolve(end, choices=(end.choices[0], other))
    asked = CHAT.parse({"messages": [HELLO], "n": 2, "return_token_ids": True, "logprobs": True})
    deltas = [Delta(ids=(7,), text="a"), Delta(ids=(9,), text="c", index=1), Delta(ids=(8,), text="b")]
    adds_up(CHAT, asked, iter(deltas), end, StreamReading())


def test_log_probabilities_wait_for_those_before_them() -> None:
    end = answer({"role": "assistant", "content": "ab"}, (7, 8))
    deltas = [Delta(ids=(7,), text="a"), Delta(ids=(8,), text="b", logprobs=(-0.5,))]
    adds_up(CHAT, asking(CHAT), iter(deltas), end, StreamReading())


def test_counts_come_last_where_they_are_asked_for() -> None:
    asked = CHAT.parse({"messages": [HELLO], "stream_options": {"include_usage": True}})
    found = streamed(CHAT, asked, iter(()), answer({"role": "assistant", "content": "hi"}))
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 6}
    assert all("token_ids" not in choice for one in found for choice in one["choices"])


@pytest.mark.parametrize(
    ("dialect", "kinds"),
    [
        (ANTHROPIC, ["message_start", "content_block_start", "content_block_delta", "content_block_delta"]),
        (RESPONSES, ["response.created", "response.in_progress", "response.output_item.added"]),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_events_come_in_the_order_of_the_api(dialect: Dialect, kinds: list[str]) -> None:
    found = streamed(
        dialect, asking(dialect), iter(()), answer({"role": "assistant", "content": "a", "reasoning": "b"})
    )
    assert [one["type"] for one in found][: len(kinds)] == kinds


def test_a_response_in_pieces_is_one_of_the_sdk_s() -> None:
    message = {"role": "assistant", "content": "a", "reasoning": "b"}
    found = streamed(RESPONSES, asking(RESPONSES), iter(()), answer(message, finish_reason="length"))
    assert found[-1]["type"] == "response.incomplete"
    response = Response.model_validate(found[-1]["response"])
    assert response.incomplete_details is not None
    assert (response.incomplete_details.reason, response.output_text) == ("max_output_tokens", "a")
    ends = [item.status for item in response.output if item.type == "reasoning" or item.type == "message"]  # noqa: PLR1714  # mypy narrows by `==` alone
    assert ends == ["completed", "incomplete"]


PINGS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": None}]}],
    "anthropic": [{"type": "ping"}],
    "responses": [{"type": "response.in_progress"}],
    "google": [],  # its own clients drop a turn of which an event has no parts, and none counts events
}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_a_ping_is_an_event_that_says_nothing(dialect: Dialect) -> None:
    """Codex breaks off a stream that has no event for five minutes, and a comment is no event."""
    ping, right = dialect.stream(asking(dialect), STAMP).ping(), PINGS[dialect.name]
    assert ping.endswith(b"\n\n")
    assert [{**one, **more} for one, more in zip(events(ping), right, strict=True)] == events(ping)


@given(turn=sampled(), cuts=CUTS, tools=st.booleans())
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_pings_between_deltas_change_no_answer(
    dialect: Dialect, turn: Sampled, cuts: list[int], *, tools: bool
) -> None:
    asked, end = asking(dialect, tools=tools), answer(turn.message(tools=tools), turn.ids)
    stream = dialect.stream(asked, STAMP)
    parts = [stream.start(), stream.ping()]
    stream.reading = StreamReading(thinking=turn.thinking)  # known once the first delta comes
    for delta in together(turn.tokens, cuts):
        parts += [stream.delta(delta), stream.ping()]
    streaming = assembled(dialect, events(b"".join([*parts, stream.finish(end)])))
    whole = orjson.loads(dumps(dialect.answer_body(asked, end)))
    assert comparable(dialect, streaming) == comparable(dialect, whole)
