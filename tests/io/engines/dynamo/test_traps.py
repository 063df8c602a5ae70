"""What a real Dynamo 1.6.1 was seen to do to its clients, and what becomes of it here.

A test a trap, each on the answer that the real one gave. Without its defence each fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest

from tests.engines.dynamo import describe
from tests.io.engines.dynamo.dynamo_server import DONE, PROMPT, Turn, chunk_bytes, events, flat, mocked
from tito_core import InputError
from tito_io.engines.dynamo import Dynamo, DynamoNotice
from tito_io.engines.dynamo.requests import Route
from tito_io.engines.protocol import (
    Delta,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.families.family import Family

pytestmark = pytest.mark.anyio

ROUTES: tuple[Route, ...] = ("chat", "completions")
TOOLED = Rendering(tools=({"type": "function", "function": {"name": "f", "parameters": {}}},))


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Return a vocabulary with tags and markers."""
    folder: Path = tmp_path_factory.mktemp("family")
    describe(folder)
    return Family.load(folder)


async def asked(
    turn: Any,
    sampling: Sampling | None = None,
    *,
    seen: list[Delta] | None = None,
    rendering: Rendering | None = None,
    sent: Sequence[int] = PROMPT,
    **options: Any,
) -> Reply:
    """Return the reply to ids; streamed where `seen` takes the deltas."""

    async def watch(delta: Delta) -> None:
        if seen is not None:
            seen.append(delta)

    engine, _ = mocked(turn, **options)
    async with engine:
        told = None if seen is None else watch
        return await engine.from_ids(sent, sampling or Sampling(), rendering, watch=told)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("streamed", [False, True])
async def test_dynamo_trap_01_a_stop_string_takes_engine_data_away(route: Route, streamed: bool) -> None:
    """The frontend's ids and log-probabilities are the whole turn."""
    cut = Turn(ids=(7, 8), engine=None, stop_reason="heh", detailed="stop")
    reply = await asked(cut, Sampling(stop=("heh",)), route=route, seen=[] if streamed else None)
    assert (reply.prompt_ids, reply.completion_ids, reply.stop_reason) == (PROMPT, (7, 8), "heh")
    assert reply.logprobs == (-0.5, -0.5)
    assert reply.finish_reason == "stop"


async def test_dynamo_trap_01_neither_engine_data_nor_ids_is_no_reply() -> None:
    with pytest.raises(InvalidReplyError, match="completion_token_ids"):
        await asked(Turn(engine=None, nvext={"completion_token_ids": None}))


MIGRATED = {"prompt_token_ids": [*PROMPT, 7, 8], "completion_token_ids": [9], "completion_logprobs": [-0.5]}


async def test_dynamo_trap_02_a_migrated_turn_is_whole_and_says_so() -> None:
    reply = await asked(Turn(ids=(7, 8, 9), engine=MIGRATED, usage=(5, 3)))
    assert (reply.prompt_ids, reply.completion_ids) == (PROMPT, (7, 8, 9))
    assert reply.logprobs == (-0.5, -0.5, -0.5)
    assert reply.notices == (DynamoNotice.MIGRATED,)
    assert reply.usage.prompt_tokens == 5, "as it was counted"


@pytest.mark.parametrize(
    "engine",
    [
        {"prompt_token_ids": [4, 5, 9]},
        {"prompt_token_ids": [4, 5]},
        {"completion_token_ids": [7, 9]},
        {**MIGRATED, "completion_token_ids": [8]},
        {**MIGRATED, "prompt_token_ids": [*PROMPT, 8, 7]},
    ],
)
async def test_dynamo_trap_02_a_worker_that_saw_other_ids_is_refused(engine: Mapping[str, Any]) -> None:
    count = len(engine.get("prompt_token_ids", PROMPT))
    with pytest.raises(InvalidReplyError):
        await asked(Turn(ids=(7, 8, 9), engine=engine, usage=(count, 3)))


async def test_dynamo_trap_02_a_count_that_nothing_explains_is_refused() -> None:
    with pytest.raises(InvalidReplyError, match="5 counted prompt ids for 3"):
        await asked(Turn(ids=(7, 8, 9), engine=None, usage=(5, 3)))


@pytest.mark.parametrize("streamed", [False, True])
async def test_dynamo_trap_03_a_frontend_that_prompts_with_the_placeholder_is_found_out(
    streamed: bool,
) -> None:
    with pytest.raises(InvalidReplyError, match=r"prompted with 3 ids, and 4 were sent.*drops `nvext`"):
        await asked(Turn(drops_nvext=True), sent=(4, 5, 6, 7), seen=[] if streamed else None)


@pytest.mark.parametrize("route", ROUTES)
async def test_dynamo_trap_04_a_bias_that_has_no_effect_is_refused(route: Route) -> None:
    engine, mock = mocked(route=route)
    with pytest.raises(UnsupportedError, match=r"logit_bias.*ignores it"):
        await engine.from_ids(PROMPT, Sampling(extra={"logit_bias": {"5": 100}}))
    assert mock.asked == []


async def test_dynamo_trap_05_log_probabilities_of_other_ids_are_refused() -> None:
    with pytest.raises(InvalidReplyError, match="belong to other ids"):
        await asked(Turn(ids=(7, 8), named=(7, 9)))


async def test_dynamo_trap_05_the_alternatives_are_no_log_probabilities_of_the_turn() -> None:
    """One or two come unasked, the likelier one perhaps first."""

    def answer(path: str, body: Mapping[str, Any]) -> httpx2.Response:
        whole = Turn(ids=(7,)).whole(path, body)
        entry = whole["choices"][0]["logprobs"]["content"][0]
        entry |= {"token": "", "bytes": None, "logprob": -7.5}
        entry["top_logprobs"] = [{"token": "y", "logprob": -0.1, "bytes": None}]
        whole["nvext"]["engine_data"]["completion_logprobs"] = [-7.500000119]
        return httpx2.Response(200, json=whole)

    assert (await asked(answer)).logprobs == (-7.5,)


@pytest.mark.parametrize("streamed", [False, True])
async def test_dynamo_trap_06_the_end_is_an_id_and_no_text(streamed: bool) -> None:
    """The content is null then, and a message is made of it: templates print null as a word."""
    ended = Turn(ids=(9,), text="", detailed="stop")
    reply = await asked(ended, seen=[] if streamed else None)
    assert (reply.completion_ids, reply.text) == ((9,), "")
    assert reply.message is not None
    assert reply.message["content"] == ""
    assert reply.notices == ()


CUT = '<tool_call>\n{"name": "f'


async def test_dynamo_trap_07_a_call_that_vanished_is_read_from_the_ids(family: Family) -> None:
    ids = tuple(family.encode("So: " + CUT))
    swallowed = Turn(ids=ids, text="So:", finish_reason="length", detailed="length")
    reply = await asked(swallowed, family=family, rendering=TOOLED)
    assert reply.message == {"role": "assistant", "content": "So: " + CUT}
    assert reply.notices == (DynamoNotice.READ_FROM_IDS,)
    assert reply.finish_reason == "length"


async def test_dynamo_trap_07_a_call_that_was_made_up_of_a_cut_one_is_not_made(family: Family) -> None:
    ids = tuple(family.encode("So: " + CUT))
    made_up = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    cut = Turn(ids=ids, text="So:", spelled="So: " + CUT, finish_reason="tool_calls", detailed="length")
    cut = attrs.evolve(cut, message={"tool_calls": [made_up]})
    assert (await asked(cut, rendering=TOOLED)).notices == (DynamoNotice.INCOMPLETE,)
    reply = await asked(cut, family=family, rendering=TOOLED)
    assert reply.message == {"role": "assistant", "content": "So: " + CUT}
    assert (reply.notices, reply.finish_reason) == ((DynamoNotice.READ_FROM_IDS,), "length")
    closed = attrs.evolve(
        cut, ids=(*family.encode(CUT + '"}</tool_call>'), family.stop_ids[0]), detailed="stop"
    )
    reply = await asked(closed, family=family, rendering=TOOLED)
    assert (reply.finish_reason, reply.text) == ("stop", "So:")
    assert reply.message == {"role": "assistant", "content": CUT + '"}</tool_call>'}


async def test_dynamo_trap_07_a_malformed_call_beside_a_good_one_is_not_lost(family: Family) -> None:
    good = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    ids = (*family.encode(good + "<tool_call>no call</tool_call>"), *family.stop_ids[:1])
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    half = Turn(ids=ids, text="", message={"tool_calls": [call]}, finish_reason="tool_calls", detailed="stop")
    reply = await asked(half, family=family, rendering=TOOLED)
    assert reply.message is not None
    assert reply.message["content"] == "<tool_call>no call</tool_call>"
    assert [call["function"]["name"] for call in reply.message["tool_calls"]] == ["f"]
    assert (reply.finish_reason, reply.notices) == ("tool_calls", (DynamoNotice.READ_FROM_IDS,))


async def test_dynamo_trap_07_a_message_that_is_whole_stays_the_engines(family: Family) -> None:
    """With thoughts taken out, blanks trimmed, the stop string and what follows cut off."""
    ids = tuple(family.encode("<think>\nhm\n</think>\n\nyes, and "))
    said = Turn(ids=ids, text="yes,", message={"reasoning_content": "hm"}, stop_reason=" and")
    reply = await asked(said, Sampling(stop=(" and",)), family=family)
    assert reply.message is not None
    assert (reply.message["content"], reply.message["reasoning_content"]) == ("yes,", "hm")
    assert reply.notices == ()


async def test_dynamo_trap_07_without_a_folder_what_is_missing_is_flagged() -> None:
    silent = Turn(ids=(7, 8, 9), text="", detailed="length", finish_reason="length")
    assert (await asked(silent, logprobs=False)).notices == (DynamoNotice.INCOMPLETE,)
    assert (await asked(silent)).notices == (), "the tokens spell nothing, so nothing is missing"
    half = Turn(ids=(7, 8, 9), text="So:", spelled="So: " + CUT)
    assert (await asked(half)).notices == (DynamoNotice.INCOMPLETE,)
    assert (await asked(attrs.evolve(half, stop_reason="<"), Sampling(stop=("<",)))).notices == ()


async def test_dynamo_trap_07_a_grammar_that_ends_the_engine_is_its_failure() -> None:
    failed = flat(500, "Internal server error", details={"backend_status": 500})
    with pytest.raises(ServerError, match="500"):
        await asked(lambda *_: failed)


@pytest.mark.parametrize("streamed", [False, True])
async def test_dynamo_trap_08_a_model_that_is_gone_is_an_outage_and_no_refusal(streamed: bool) -> None:
    with pytest.raises(ServerError, match="no worker"):
        await asked(lambda *_: httpx2.Response(404), seen=[] if streamed else None)
    with pytest.raises(RequestError, match="404"):
        await asked(lambda *_: flat(404, "Model not found"))


@pytest.mark.parametrize(
    ("route", "name"), [("chat", "max_completion_tokens"), ("completions", "max_tokens")]
)
async def test_dynamo_trap_11_each_route_has_its_own_word_for_the_most_ids(route: Route, name: str) -> None:
    """Where two are given, one wins; what is left is said, since the mocker wants a number."""
    engine, mock = mocked(route=route)
    await engine.from_ids(PROMPT, Sampling(max_tokens=5))
    assert {key: value for key, value in mock.body.items() if key.startswith("max")} == {name: 5}
    await engine.from_ids(PROMPT, Sampling())
    assert mock.body[name] == 47
    with pytest.raises(InputError, match="at least 1"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=0))
    with pytest.raises(UnsupportedError, match="max_completion_tokens"):
        await engine.from_ids(PROMPT, Sampling(extra={"max_completion_tokens": 5}))


async def test_dynamo_trap_12_events_without_data_are_passed_over() -> None:
    def answer(path: str, body: Mapping[str, Any]) -> httpx2.Response:
        chunks = map(chunk_bytes, Turn().chunks(path, Turn().whole(path, body)))
        return events(
            b'event: request_id\n: "b5756858"\n\n', b'event: formatted_prompt\n: "x"\n\n', *chunks, DONE
        )

    seen: list[Delta] = []
    reply = await asked(answer, seen=seen)
    assert reply.completion_ids == (7, 8)
    assert len(seen) == 2


async def test_dynamo_trap_13_ids_that_no_text_gives_back_are_kept(family: Family) -> None:
    """Most of what a model samples is spelled otherwise than its text would be."""
    letters = tuple(index for letter in "hello" for index in family.encode(letter))
    assert list(letters) != family.encode("hello")
    reply = await asked(Turn(ids=letters, text="hello"), family=family)
    assert reply.completion_ids == letters


# Those that were known before one was run.


async def test_trap_34_ids_that_a_parser_held_back_come_in_one_chunk() -> None:
    call = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    held = Turn(ids=(7, 8, 9), held=True, text="", message={"tool_calls": [call]}, finish_reason="tool_calls")
    seen: list[Delta] = []
    reply = await asked(held, seen=seen, rendering=TOOLED)
    assert [delta.ids for delta in seen] == [(7, 8, 9)]
    assert reply.completion_ids == (7, 8, 9)
    assert reply.message is not None
    assert reply.message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


async def test_trap_34_a_log_probability_that_comes_a_chunk_later_is_of_its_id() -> None:
    def answer(path: str, body: Mapping[str, Any]) -> httpx2.Response:
        turn = Turn(ids=(7, 8, 9), logprobs=(-0.1, -0.2, -0.3))
        chunks = turn.chunks(path, turn.whole(path, body))
        logprobs = [chunk["choices"][0]["logprobs"] for chunk in chunks[:3]]
        logprobs[2]["content"][:0], logprobs[1]["content"] = logprobs[1]["content"], None
        return events(*map(chunk_bytes, chunks), DONE)

    seen: list[Delta] = []
    reply = await asked(answer, seen=seen)
    assert reply.logprobs == (-0.1, -0.2, -0.3)
    assert [delta.logprobs for delta in seen] == [(-0.1,), None, None]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seen", [None, []])
@pytest.mark.parametrize("values", [(-0.5,), ()])
async def test_trap_35_log_probabilities_that_do_not_fit_are_refused(
    route: Route, seen: list[Delta] | None, values: tuple[float, ...]
) -> None:
    few: dict[str, Any] | None = {"completion_logprobs": list(values)} if values else None
    turn = Turn(ids=(7, 8), logprobs=values, engine=few)
    with pytest.raises(InvalidReplyError, match=r"the 2 sampled ids.*logprobs=False") as caught:
        await asked(turn, route=route, seen=None if seen is None else [])
    assert caught.value.partial is None or caught.value.partial.completion_ids == (7, 8)
    reply = await asked(turn, route=route, logprobs=False)
    assert (reply.completion_ids, reply.notices) == ((7, 8), ()), "they were not requested"


async def test_trap_35_the_worker_may_have_the_log_probabilities_that_the_frontend_has_not() -> None:
    assert (await asked(Turn(ids=(7, 8), logprobs=(-0.5,)))).logprobs == (-0.5, -0.5)


@pytest.mark.parametrize("route", ROUTES)
async def test_trap_36_several_turns_are_refused_before_they_are_sampled(route: Route) -> None:
    engine, mock = mocked(route=route)
    with pytest.raises(UnsupportedError, match="Nothing was sent"):
        await engine.from_ids(PROMPT, Sampling(n=2))
    with pytest.raises(UnsupportedError, match="Nothing was sent"):
        await engine.from_messages([{"role": "user", "content": "hi"}], Rendering(), Sampling(n=2))
    assert mock.asked == []


async def test_trap_37_an_engine_that_failed_or_was_cancelled_is_no_clean_end() -> None:
    with pytest.raises(ServerError):
        await asked(Turn(engine={"finished": False}))
    with pytest.raises(ServerError):
        await asked(Turn(detailed="error: out of memory"))
    reply = await asked(Turn(detailed="cancelled"))
    assert (reply.finish_reason, reply.truncated) == ("abort", True)


async def test_trap_37_a_turn_cut_after_its_call_was_cut() -> None:
    call = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    cut = Turn(text="", message={"tool_calls": [call]}, finish_reason="tool_calls", detailed="length")
    assert (await asked(cut)).finish_reason == "length"
    with pytest.raises(InvalidReplyError, match="unknown reason"):
        await asked(Turn(detailed="content_filter"))


@pytest.mark.parametrize("detailed", [None, "stop", "eos"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_trap_37_a_turn_that_calls_and_ends_by_itself_ends_with_its_call(
    detailed: str | None, *, streamed: bool
) -> None:
    """The engine knows no calls: it says `stop` of every turn that was not cut."""
    call = {"index": 0, "id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = Turn(text="", message={"tool_calls": [call]}, finish_reason="tool_calls", detailed=detailed)
    reply = await asked(turn, seen=[] if streamed else None, rendering=TOOLED)
    assert (reply.finish_reason, reply.truncated) == ("tool_calls", False)
    assert (await asked(Turn(detailed=detailed))).finish_reason == "stop"


async def test_an_overlong_prompt_is_told_in_numbers() -> None:
    engine, mock = mocked(card={"id": "m", "context_window": 0})
    with pytest.raises(OverlongError, match="61 ids, and there is room for 50"):
        await engine.from_ids([5] * 60, Sampling(max_tokens=1))
    assert len(mock.asked) == 1
    known, mock = mocked()
    with pytest.raises(OverlongError, match="Nothing was sent"):
        await known.from_ids([5] * 50, Sampling(max_tokens=1))
    assert mock.asked == []


def test_a_route_is_one_of_two() -> None:
    with pytest.raises(InputError, match="pass 'chat' or 'completions'"):
        Dynamo("http://mock", route="generate")  # type: ignore[arg-type]  # the point
