"""A session of Miles: messages go in, every sampled id comes out, and refusals have names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import httpx2
import orjson
import pytest

from tests.io.engines.miles.miles_server import FIRST_SAMPLED, Fake, Says
from tito_core import InputError
from tito_io.engines.miles import (
    CutTurnError,
    MilesRouter,
    MilesSession,
    NotRecordedError,
    RecordsUnavailableError,
    SamplesRefusedError,
    SessionNotFoundError,
    SessionUsedError,
)
from tito_io.engines.miles.replies import sampled
from tito_io.engines.protocol import (
    EmptyReplyError,
    EngineAnswer,
    InvalidReplyError,
    OverlongError,
    RequestError,
    ServerError,
    UnsupportedError,
)
from tito_io.engines.replies.invariants import Check

pytestmark = pytest.mark.anyio
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]
BOTH = pytest.mark.parametrize("later", [False, True], ids=["older", "later"])


@asynccontextmanager
async def opened(fake: Fake, **options: Any) -> AsyncIterator[MilesSession]:
    """Open a session at a fake server."""
    async with (
        MilesRouter("http://miles", transport=fake.transport) as router,
        router.session(**options) as session,
    ):
        yield session


def continued(reply: Any, *new: Mapping[str, Any], after: list[dict[str, Any]] = HELLO) -> list[Any]:
    return [*after, reply.message, *(new or [{"role": "user", "content": "more"}])]


@BOTH
@pytest.mark.parametrize("echoes", [True, False], ids=["echoed", "recorded"])
async def test_messages_go_in_and_ids_come_out(later: bool, echoes: bool) -> None:
    fake = Fake(later=later, echoes=echoes, script=[Says(text="one", count=4), Says(text="two", count=2)])
    async with opened(fake) as session:
        first = await session.chat({"messages": HELLO})
        second = await session.chat({"messages": continued(first)})
    assert first.completion_ids == tuple(range(FIRST_SAMPLED, FIRST_SAMPLED + 4))
    assert first.logprobs == (-0.5,) * 4
    assert (first.text, first.finish_reason, first.truncated) == ("one", "stop", False)
    assert (first.stop_reason, first.weight_versions[0].version) == (FIRST_SAMPLED + 3, "default")
    kept = (*first.prompt_ids, *first.completion_ids)
    assert second.prompt_ids[: len(kept)] == kept
    assert second.usage.prompt_tokens == len(second.prompt_ids)
    assert (second.usage.cached_tokens, second.text) == (0, "two")


@pytest.mark.parametrize(("echoes", "reads"), [(True, 0), (False, 2)])
async def test_records_are_read_only_where_the_engine_does_not_repeat_the_prompt(
    echoes: bool, reads: int
) -> None:
    fake = Fake(echoes=echoes)
    async with opened(fake) as session:
        reply = await session.chat({"messages": HELLO})
        await session.chat({"messages": continued(reply)})
        assert fake.sessions[session.id].generation == 2 + reads


@BOTH
async def test_ids_are_asked_for_whatever_the_generation(later: bool) -> None:
    fake = Fake(later=later)
    async with opened(fake) as session:
        await session.chat({"messages": HELLO, "max_tokens": 9})
    (body,) = fake.bodies("completions")
    assert body["logprobs"] is body["return_meta_info"] is body["return_prompt_token_ids"] is True
    assert (body["model"], body["max_tokens"]) == ("default", 9)
    assert "stream" not in body


@BOTH
@pytest.mark.parametrize("tree", [False, True])
async def test_records_hold_what_went_in_and_what_came_out(later: bool, tree: bool) -> None:
    fake = Fake(later=later, tree=tree)
    async with opened(fake) as session:
        first = await session.chat({"messages": HELLO})
        second = await session.chat({"messages": continued(first)})
        found = await session.records()
    assert [one.prompt_ids for one in found.records] == [first.prompt_ids, second.prompt_ids]
    assert [one.completion_ids for one in found.records] == [first.completion_ids, second.completion_ids]
    assert [one.logprobs for one in found.records] == [first.logprobs, second.logprobs]
    assert found.accumulated_ids == (*second.prompt_ids, *second.completion_ids)
    assert (found.max_trim_tokens, found.mismatches) == (0, ())
    assert found.get(first.raw["id"]) == found.records[0]
    assert found.get("another") is None
    retried = attrs.evolve(found.records[1], response_id=found.records[0].response_id)
    again = attrs.evolve(found, records=(found.records[0], retried))
    assert again.get(first.raw["id"]) == retried, "the latest of one id"
    routed = found.records[0].response["choices"][0]["meta_info"]["routed_experts"]
    assert routed == "AAAA"  # the client's reply has none
    assert "routed_experts" not in first.raw["choices"][0]["meta_info"]


async def test_a_record_without_the_prompt_s_ids_is_refused_unless_the_engine_repeated_them() -> None:
    fake = Fake(echoes=True)
    async with opened(fake) as session:
        reply = await session.chat({"messages": HELLO})
        record = fake.sessions[session.id].nodes[0].record
        del record["request"]["input_ids"]  # as the oldest servers leave the first turn
        assert (await session.records()).records[0].prompt_ids == reply.prompt_ids
        del record["response"]["choices"][0]["prompt_token_ids"]
        with pytest.raises(InvalidReplyError, match="neither the prompt's ids nor"):
            await session.records()
        for choices in (list[Any](), None):
            record["response"]["choices"] = choices
            with pytest.raises(EmptyReplyError):
                await session.records()


# What the server would drop, overwrite or fake is refused before anything is sent.


@pytest.mark.parametrize(
    ("body", "error", "told"),
    [
        ({"input_ids": [1]}, InputError, "input_ids: the session's server sets it"),
        ({"logprob_start_len": 0}, InputError, "logprob_start_len"),
        ({"routed_experts_start_len": 3}, InputError, "routed_experts_start_len"),
        ({"n": 2}, UnsupportedError, "records one turn a request"),
        ({"stream": True}, UnsupportedError, "without its ids"),
        ({"messages": []}, InputError, "the list is empty"),
        ({"messages": None}, InputError, "must be a list of messages"),
        ({"messages": [1]}, InputError, "must be a message"),
        ({"messages": [{"role": "developer", "content": "x"}]}, InputError, "send it as system"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 2}]},
            InputError,
            "content parts; send one string",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            UnsupportedError,
            "no images",
        ),
    ],
)
async def test_what_would_be_lost_is_refused_before_it_is_sent(
    body: dict[str, Any], error: type[Exception], told: str
) -> None:
    fake = Fake()
    async with opened(fake) as session:
        with pytest.raises(error, match=told):
            await session.chat({"messages": HELLO, **body})
    assert fake.bodies("completions") == []


@BOTH
async def test_the_server_itself_loses_or_refuses_what_the_client_does_not_send(later: bool) -> None:
    """The fake is as strict as the real one: else the tests before would prove nothing."""
    fake = Fake(later=later)
    async with opened(fake) as session:
        status = {}
        for name, body in {
            "ids": {"messages": HELLO, "input_ids": [1, 2]},
            "plain": {"messages": HELLO},
            "stream": {"messages": HELLO, "stream": True},
            "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]},
        }.items():
            fake.sessions[session.id].nodes.clear()
            response = await session.wire.exchange(
                "POST", f"{session.path}/v1/chat/completions", orjson.dumps(body)
            )
            status[name] = response.status_code, response.text
        record = fake.sessions[session.id].nodes[0].record
    assert status["ids"][0] == (400 if later else 200)
    assert ("output_token_logprobs" in status["plain"][1]) is not later
    assert status["stream"][1].count("data:") == 2
    assert "output_token_logprobs" not in status["stream"][1]
    assert record["request"]["input_ids"] == [1, 6, 2, 10, 1, 9]  # nothing of the text is left


async def test_a_lone_text_part_is_sent_as_its_string_and_arguments_as_text() -> None:
    fake = Fake()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    said: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "hello"}]},
        {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]
    async with opened(fake) as session:
        await session.chat({"messages": said})
    user, assistant, _ = fake.bodies("completions")[0]["messages"]
    assert user["content"] == "hello"
    assert assistant["reasoning_content"] == "hm"
    assert assistant["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert said[0]["content"] == [{"type": "text", "text": "hello"}]  # the caller's own stay as they are


# Tools.


@BOTH
async def test_a_session_keeps_its_tools(later: bool) -> None:
    fake = Fake(later=later)
    async with opened(fake) as session:
        first = await session.chat({"messages": HELLO, "tools": TOOLS})
        second = await session.chat({"messages": continued(first)})
        with pytest.raises(InputError, match="tools do not change"):
            await session.chat({"messages": continued(first), "tools": [*TOOLS, *TOOLS]})
    assert [body["tools"] for body in fake.bodies("completions")] == [TOOLS, TOOLS]
    assert second.prompt_ids[:2] == (3, 1)


async def test_a_session_without_tools_gets_none_later() -> None:
    fake = Fake()
    async with opened(fake) as session:
        first = await session.chat({"messages": HELLO})
        with pytest.raises(InputError, match="tools do not change"):
            await session.chat({"messages": continued(first), "tools": TOOLS})
        await session.chat({"messages": continued(first), "tools": []})


# Invariants: what does not add up is no turn.

Change = Callable[[dict[str, Any]], object]


def choice(body: dict[str, Any]) -> dict[str, Any]:
    return body["choices"][0]  # type: ignore[no-any-return]  # JSON


def meta(body: dict[str, Any]) -> dict[str, Any]:
    return choice(body)["meta_info"]  # type: ignore[no-any-return]  # JSON


BROKEN: Mapping[str, tuple[Change, str]] = {
    "another prompt count": (lambda b: meta(b).update(prompt_tokens=1), "1 counted prompt ids"),
    "another usage": (lambda b: b["usage"].update(completion_tokens=9), "9 counted sampled ids for 3"),
    "a shorter echo": (lambda b: choice(b)["prompt_token_ids"].pop(), "counted prompt ids"),
    "an id that is none": (
        lambda b: meta(b)["output_token_logprobs"].__setitem__(0, [-0.5, "x"]),
        "is not a log-probability with its id",
    ),
    "a log-probability above 0": (
        lambda b: meta(b)["output_token_logprobs"].__setitem__(0, [0.5, 1]),
        "above 0",
    ),
    "no usage": (lambda b: b.pop("usage"), "`usage` is null or missing"),
    "two choices": (lambda b: b["choices"].append(choice(b)), "2 choices"),
    "no finish reason": (lambda b: choice(b).update(finish_reason=None), "`finish_reason`"),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_turn_that_does_not_add_up_is_refused_whole(broken: str) -> None:
    change, told = BROKEN[broken]
    async with opened(Fake(script=[Says(change=change)])) as session:
        with pytest.raises(InvalidReplyError, match=told) as caught:
            await session.chat({"messages": HELLO})
    assert caught.value.answer is not None
    assert caught.value.answer.body["choices"]  # nothing is lost: whoever looks into it finds the ids


@pytest.mark.parametrize(
    "change",
    [
        lambda body: meta(body)["output_token_logprobs"].pop(),
        lambda body: choice(body)["message"].update(content=None),
        lambda body: choice(body).pop("meta_info"),
    ],
)
async def test_what_the_server_refuses_of_its_engine_is_the_server_s_trouble(change: Change) -> None:
    async with opened(Fake(script=[Says(change=change)])) as session:
        with pytest.raises(ServerError, match="answered 502"):
            await session.chat({"messages": HELLO})


@pytest.mark.parametrize("entry", [[-0.5], None, -0.5])
def test_an_entry_without_an_id_is_refused(entry: object) -> None:
    answered = {"meta_info": {"completion_tokens": 1, "output_token_logprobs": [entry]}}
    with pytest.raises(InvalidReplyError, match="is not a log-probability with its id"):
        sampled(Check("POST /", EngineAnswer(200, answered)), answered)


async def test_a_missing_log_probability_is_none() -> None:
    def change(body: dict[str, Any]) -> None:
        meta(body)["output_token_logprobs"][1][0] = None

    async with opened(Fake(script=[Says(change=change)])) as session:
        assert (await session.chat({"messages": HELLO})).logprobs == (-0.5, None, -0.5)


@pytest.mark.parametrize(("finish", "truncated"), [("stop", False), ("length", True), ("abort", True)])
async def test_a_cut_turn_is_told_also_where_it_called_a_tool(finish: str, truncated: bool) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    async with opened(Fake(script=[Says(finish=finish, calls=(call,))])) as session:
        reply = await session.chat({"messages": HELLO})
    assert reply.truncated is truncated
    assert reply.finish_reason == ("tool_calls" if finish == "stop" else finish)


async def test_a_record_with_other_ids_than_the_reply_is_refused() -> None:
    def other(response: dict[str, Any]) -> None:
        meta(response)["output_token_logprobs"][0][1] += 1

    async with opened(Fake(echoes=False, spoil=other)) as session:
        with pytest.raises(InvalidReplyError, match="recorded other ids"):
            await session.chat({"messages": HELLO})


async def test_a_turn_that_was_answered_and_not_recorded_is_an_error_that_holds_it() -> None:
    """Two clients in one session: a server that does not branch keeps the first turn that is through."""
    fake = Fake(echoes=False, held=anyio.Event())
    lost: list[NotRecordedError] = []
    async with opened(fake) as session:

        async def talk(client: MilesSession) -> None:
            try:
                await client.chat({"messages": HELLO})
            except NotRecordedError as error:
                lost.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(talk, session)
            group.start_soon(talk, MilesSession(session.id, session.wire))
            while len(fake.bodies("completions")) < 2:  # noqa: ASYNC110  # a server tells nobody
                await anyio.sleep(0.001)
            assert fake.held is not None
            fake.held.set()
        (kept,) = (await session.records()).records
    (error,) = lost
    assert error.answer is not None
    pairs = error.answer.body["choices"][0]["meta_info"]["output_token_logprobs"]
    assert sorted([*kept.completion_ids, *(pair[1] for pair in pairs)]) == fake.sampled


async def test_turns_of_one_session_wait_for_each_other() -> None:
    """A server of the first kind throws away a turn whose session changed meanwhile."""
    fake = Fake(later=False)
    async with opened(fake) as session:
        first = await session.chat({"messages": HELLO})
        replies: list[Any] = []

        async def again() -> None:
            replies.append(await session.chat({"messages": continued(first)}))

        async with anyio.create_task_group() as group:
            group.start_soon(again)
            group.start_soon(again)
        found = await session.records()
    assert found.records[-1].completion_ids == replies[-1].completion_ids


# The server's refusals.


async def test_a_cut_turn_is_not_continued_by_a_server_that_branches() -> None:
    async with opened(Fake(tree=True, script=[Says(finish="length")])) as session:
        cut = await session.chat({"messages": HELLO})
        with pytest.raises(CutTurnError, match="open another session"):
            await session.chat({"messages": continued(cut)})


async def test_another_temperature_is_refused_while_training() -> None:
    async with opened(Fake(), sampling={"temperature": 1.0}) as session:
        reply = await session.chat({"messages": HELLO})
        with pytest.raises(RequestError, match="answered 400"):
            await session.chat({"messages": continued(reply), "temperature": 0.5})
    async with opened(Fake(), sampling={"temperature": 1.0}, evaluation=True) as session:
        await session.chat({"messages": HELLO, "temperature": 0.5})


async def test_older_servers_keep_no_sampling_parameters() -> None:
    async with opened(Fake(later=False), sampling={"temperature": 1.0}) as session:
        await session.chat({"messages": HELLO, "temperature": 0.5})


async def test_going_back_too_far_is_refused_by_a_server_that_does_not_branch() -> None:
    async with opened(Fake()) as session:
        first = await session.chat({"messages": HELLO})
        second = await session.chat({"messages": continued(first)})
        more = continued(second, after=continued(first))
        await session.chat({"messages": more})
        with pytest.raises(RequestError, match="answered 400"):
            await session.chat({"messages": [{"role": "user", "content": "other"}]})


async def test_an_overlong_prompt_has_the_engine_s_error() -> None:
    told = "The input (9 tokens) is longer than the model's context length (8 tokens)."
    fake = Fake(refusal={"object": "error", "message": told, "type": "BadRequestError", "code": 400})
    async with opened(fake) as session:
        with pytest.raises(OverlongError, match="answered 400"):
            await session.chat({"messages": HELLO})
        assert (await session.records()).records == ()


@BOTH
async def test_a_session_that_is_gone_is_not_found(later: bool) -> None:
    fake = Fake(later=later)
    async with opened(fake) as session:
        await session.chat({"messages": HELLO})
        fake.sessions.clear()
        for asking in (session.records(), session.samples(), session.chat({"messages": HELLO})):
            with pytest.raises(SessionNotFoundError, match="answered 404: it has no such session"):
                await asking
        await session.delete()  # gone is what was wanted
    assert session.deleted


async def test_an_unknown_route_is_not_a_session_that_is_gone() -> None:
    async with opened(Fake()) as session:
        with pytest.raises(RequestError, match="no such model or route") as caught:
            await session.ask("GET", "/nowhere")
    assert not isinstance(caught.value, SessionNotFoundError)


async def test_an_unknown_model_is_not_a_session_that_is_gone() -> None:
    refusal = {"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404}}
    async with opened(Fake(refusal=refusal, status=404)) as session:
        with pytest.raises(RequestError, match="The model `m` does not exist") as caught:
            await session.chat({"messages": HELLO})
    assert not isinstance(caught.value, SessionNotFoundError)


async def test_records_that_cannot_be_read_may_be_asked_for_again() -> None:
    fake = Fake()
    async with opened(fake) as session:
        await session.chat({"messages": HELLO})
        fake.unreadable = 2
        for asking in (session.records(), session.samples()):
            with pytest.raises(RecordsUnavailableError, match="ask again"):
                await asking
        assert len((await session.samples()).samples) == 1


async def test_samples_that_cannot_be_made_are_refused_in_the_server_s_words() -> None:
    fake = Fake(unassembled="token mismatch in turn 2: <conversation>")
    async with opened(fake) as session:
        await session.chat({"messages": HELLO})
        with pytest.raises(SamplesRefusedError, match="cannot make samples") as caught:
            await session.samples()
    assert "conversation" not in str(caught.value)
    assert caught.value.answer is not None
    assert caught.value.answer.body == "token mismatch in turn 2: <conversation>"


async def test_a_session_that_is_used_after_its_samples_is_not_deleted_unseen() -> None:
    fake = Fake()
    async with opened(fake) as session:
        reply = await session.chat({"messages": HELLO})
        await session.samples()
        stray = MilesSession(session.id, session.wire)  # an agent that still talks
        await stray.chat({"messages": continued(reply)})
        with pytest.raises(SessionUsedError, match="take them again"):
            await session.delete()
        assert session.id in fake.sessions
        await session.samples()
        await session.delete()
    assert session.deleted


async def test_the_client_s_own_use_after_the_samples_is_no_obstacle() -> None:
    fake = Fake()
    async with opened(fake) as session:
        await session.chat({"messages": HELLO})
        await session.samples()
        await session.records()
    assert session.deleted
    assert fake.sessions == {}


async def test_an_answer_that_is_no_json_is_no_session_server_s() -> None:
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, text="<html>"))
    async with MilesRouter("http://miles", transport=transport) as router:
        session = MilesSession("s", router.wire)
        with pytest.raises(InvalidReplyError, match="not JSON"):
            await session.records()
