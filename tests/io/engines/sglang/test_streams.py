"""Streamed turns of SGLang: what is told as it comes, and what the stream amounts to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import anyio
import httpx2
import pytest

from tests.io.engines.scripted import Heard
from tests.io.engines.sglang.sglang_server import (
    PROMPT,
    Mock,
    chatted,
    generated,
    mocked,
    stream,
    triples,
)
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    EngineError,
    InvalidReplyError,
    Rendering,
    Reply,
    Sampling,
    UnreachableError,
)
from tito_io.engines.sglang import SGLang
from tito_io.engines.sglang.calls import ABORT
from tito_io.engines.sglang.requests import CHAT, GENERATE

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
STOP = {"type": "stop", "matched": 9}
ABORTED = {"type": "abort", "message": "Aborted", "status_code": None}
IDS, TEXTS = (7, 8, 9), ("a", "ab", "ab")


def event(
    ids: Sequence[int], text: str, total: int, finish: Any = None, *, logprobs: Any = None, **more: Any
) -> dict[str, Any]:
    """Return an event of `/generate`: what it repeats or adds, and the engine's count."""
    values = triples(ids) if logprobs is None else logprobs
    body = generated(ids, text=text, completion_tokens=total, output_token_logprobs=values)
    body["meta_info"] |= {"finish_reason": finish, "weight_versions": None}
    return {**body, **more}


CUMULATIVE = [event(IDS[:n], TEXTS[n - 1], n, STOP if n == 3 else None) for n in (1, 2, 3)]
INCREMENTAL = [
    event((7,), "a", 1),
    event((8,), "b", 2),
    event((9,), "", 3, STOP),
]


async def watched(
    events: Sequence[Any], *, done: bool = True, **sampling: Any
) -> tuple[list[Delta], Reply | EngineError]:
    """Return what was told of a stream of `/generate`, and what it came to."""
    engine, _ = mocked({GENERATE: stream(events, done=done)})
    heard = Heard()
    try:
        return heard.deltas, await engine.from_ids(PROMPT, Sampling(**sampling), watch=heard)
    except EngineError as error:
        return heard.deltas, error


@pytest.mark.parametrize("events", [CUMULATIVE, INCREMENTAL])
async def test_trap_27_a_stream_may_repeat_itself_or_not_sglang(events: list[Any]) -> None:
    told, reply = await watched(events)
    assert isinstance(reply, Reply)
    assert [delta.ids for delta in told] == [(7,), (8,), (9,)]
    assert [delta.text for delta in told] == ["a", "b", ""]
    assert {delta.logprobs for delta in told} == {(-0.5,)}
    assert (reply.completion_ids, reply.text, reply.finish_reason) == (IDS, "ab", "stop")
    assert reply.logprobs == (-0.5,) * 3


@pytest.mark.parametrize(
    ("before", "last"),
    [
        (INCREMENTAL[:2], event((8,), "ab", 2, ABORTED, logprobs=triples((7, 8)))),
        (INCREMENTAL[:2], event((9, 9), "ab", 3, ABORTED, logprobs=triples((7, 8, 9)))),
        (INCREMENTAL[:2], event((9, 9), "ab", 3, ABORTED, logprobs=triples((9, 7, 8, 9)))),
        (INCREMENTAL[:1], event((7,), "a", 1, ABORTED)),
        ([], event((7, 8, 8), "ab", 2, ABORTED, logprobs=triples((7, 8)))),
        (CUMULATIVE[:2], event((7, 8), "ab", 2, ABORTED)),
        (CUMULATIVE[:2], event((7, 8, 9), "ab", 3, ABORTED)),
    ],
)
async def test_trap_28_an_abort_repeats_no_id_sglang(before: list[Any], last: dict[str, Any]) -> None:
    told, error = await watched([*before, last])
    assert isinstance(error, AbortedError)
    assert error.partial is not None
    total = last["meta_info"]["completion_tokens"]
    assert error.partial.completion_ids == IDS[:total]
    assert error.partial.logprobs == (-0.5,) * total
    assert [index for delta in told for index in delta.ids] == list(IDS[:total])


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([event((7,), "a", 1), event((8, 9), "b", 4)], "2 sampled ids after 1, and the engine counts 4"),
        ([event((7,), "a", 1), event((6, 8), "b", 2)], "took sampled ids back"),
        (
            [event((7,), "a", 1), event((8,), "b", 2, logprobs=triples((8, 9, 9)))],
            "3 log-probabilities after",
        ),
        ([event((7,), "a", 1, index=1)], "is of turn 1"),
        ([{"text": "a"}], "`meta_info` is null or missing"),
        ([event((7,), "a", 1)], "before its turn did"),
        ([], "before its turn did"),
        ([{**event((7,), "a", 1, STOP), "prompt_token_ids": [4, 5]}], "other prompt ids than were sent"),
    ],
)
async def test_a_stream_that_does_not_add_up_is_refused(events: list[Any], told: str) -> None:
    _, error = await watched(events)
    assert isinstance(error, InvalidReplyError)
    assert told in str(error)
    if events and "meta_info" in events[0] and "index" not in events[0]:
        assert error.partial is not None
        assert error.partial.completion_ids == (7,)


async def test_several_turns_are_told_apart() -> None:
    events = [
        event((7,), "a", 1, index=1),
        event((5,), "x", 1, STOP, index=0),
        event((7, 8), "ab", 2, STOP, index=1),
    ]
    told, reply = await watched(events, n=2)
    assert isinstance(reply, Reply)
    assert [(delta.index, delta.ids) for delta in told] == [(1, (7,)), (0, (5,)), (1, (8,))]
    assert (reply.completion_ids, reply.siblings[0].completion_ids) == ((5,), (7, 8))
    _, error = await watched(events[:2], n=2)
    assert isinstance(error, InvalidReplyError)
    assert error.partial is not None
    assert [one.finish_reason for one in (error.partial, *error.partial.siblings)] == ["stop", "abort"]


async def test_a_stop_string_that_was_shown_is_taken_back() -> None:
    events = [event((7,), "hel", 1), event((7, 8), "he", 2, {"type": "stop", "matched": "l"})]
    told, reply = await watched(events)
    assert isinstance(reply, Reply)
    assert (reply.text, reply.stop_reason, reply.completion_ids) == ("he", "l", (7, 8))
    assert [delta.text for delta in told] == ["hel", ""]


# The OpenAI routes.


def chunk(**choice: Any) -> dict[str, Any]:
    """Return a chunk of one choice."""
    said = {"index": 0, "finish_reason": None, "matched_stop": None, "logprobs": None, **choice}
    return {"id": "r", "choices": [said], "usage": None}


COUNTS = {"prompt_tokens": 3, "completion_tokens": 2}
CHUNKS = [
    chunk(delta={"role": "assistant", "content": "", "reasoning_content": None}),
    chunk(delta={"content": "h"}, logprobs={"content": [{"token": "h", "logprob": -0.25}]}),
    chunk(delta={"content": "i"}, logprobs={"content": [{"token": "i", "logprob": -0.5}]}),
    chunk(delta={"reasoning_content": None}, finish_reason="stop", matched_stop=8),
    {"id": "r", "choices": [], "usage": None, "sglext": {"input_ids": [4, 5, 6], "output_ids": [[7, 8]]}},
    {"id": "r", "choices": [], "usage": COUNTS},
]


@pytest.mark.parametrize("by_ids", [True, False])
async def test_trap_26_a_streamed_chat_says_its_ids_at_the_end_sglang(by_ids: bool) -> None:
    engine, mock = mocked({CHAT: stream(CHUNKS)}, route="chat")
    heard = Heard()
    if by_ids:
        reply = await engine.from_ids(PROMPT, Sampling(), watch=heard)
    else:
        reply = await engine.from_messages(HELLO, Rendering(), Sampling(), watch=heard)
    (body,) = mock.bodies(CHAT)
    refused = ("return_token_ids", "return_prompt_token_ids", "return_meta_info")
    assert not any(name in body for name in refused), "with `stream` each of them is a 400"
    assert [(delta.ids, delta.text) for delta in heard.deltas] == [((), "h"), ((), "i"), ((7, 8), "")]
    assert (reply.prompt_ids, reply.completion_ids) == (PROMPT, (7, 8))
    assert reply.logprobs == (-0.25, -0.5)
    assert (reply.text, reply.finish_reason, reply.stop_reason) == ("hi", "stop", 8)


async def test_trap_26_a_chat_in_one_piece_asks_for_its_ids_by_every_name_sglang() -> None:
    engine, mock = mocked({CHAT: chatted()})
    await engine.from_messages(HELLO, Rendering(), Sampling())
    (body,) = mock.bodies(CHAT)
    names = ("return_token_ids", "return_prompt_token_ids", "return_meta_info", "return_completion_token_ids")
    assert all(body[name] is True for name in (*names, "logprobs"))
    assert "stream" not in body


async def test_a_chat_that_breaks_before_its_ids_has_none_to_keep() -> None:
    engine, _ = mocked({CHAT: stream(CHUNKS[:3], done=False)}, route="chat")
    with pytest.raises(UnreachableError) as caught:
        await engine.from_ids(PROMPT, Sampling(), watch=Heard())
    assert caught.value.partial is None


# Leaving.


async def test_a_cancelled_call_is_aborted_by_its_name() -> None:
    names: list[tuple[str, str]] = []

    async def answer(request: httpx2.Request) -> httpx2.Response:
        body = request.content.decode()
        names.append((request.url.path, body))
        if request.url.path == GENERATE and "logit_bias" not in body:
            await anyio.sleep_forever()
        return Mock({})(request)

    engine = SGLang("http://mock:30000", transport=httpx2.MockTransport(answer))
    with anyio.move_on_after(0.2):
        await engine.from_ids(PROMPT, Sampling())
    (sent,) = [body for path, body in names if path == GENERATE and "logit_bias" not in body]
    (aborted,) = [body for path, body in names if path == ABORT]
    rid = aborted.split('"')[3]
    assert UUID(rid).version == 4
    assert f'"rid":"{rid}"' in sent


async def test_a_watcher_that_fails_aborts_too() -> None:
    engine, mock = mocked({GENERATE: stream(CUMULATIVE)})

    async def watch(_: Delta) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await engine.from_ids(PROMPT, Sampling(), watch=watch)
    assert mock.bodies(ABORT) == [{"rid": mock.bodies(GENERATE)[0]["rid"]}]


async def test_a_call_that_was_answered_aborts_nothing() -> None:
    engine, mock = mocked({GENERATE: httpx2.Response(400, json={"error": "no"})})
    with pytest.raises(EngineError):
        await engine.from_ids(PROMPT, Sampling())
    fine, asked = mocked({GENERATE: generated()})
    await fine.from_ids(PROMPT, Sampling())
    assert mock.bodies(ABORT) + asked.bodies(ABORT) == []
