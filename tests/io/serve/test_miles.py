"""The client of Miles' session protocol at this gateway: an agent runs unchanged, in both of its wires."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx2
import pytest

from tests.io.engines.miles.test_router import run_agent
from tests.io.serve.gateway import (
    CHAT,
    HELLO,
    Scripted,
    chat,
    client,
    embedded_gateway,
    opened,
    scripted_gateway,
    served,
    talking,
    toy,
    user,
)
from tito_core import InputError
from tito_io.engines.miles import (
    Miles,
    MilesRouter,
    MilesSession,
    SessionNotFoundError,
    SessionUsedError,
    request_kwargs,
)
from tito_io.engines.protocol import OverlongError, Rendering, RequestError, Sampling, UnreachableError
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, GatewayOptions
from tito_io.serve.refusals import ENDED

pytestmark = pytest.mark.anyio
WIRES = pytest.mark.parametrize("later", [False, True], ids=["older", "later"])


@asynccontextmanager
async def routed(gateway: Gateway | None = None) -> AsyncIterator[MilesRouter]:
    transport = httpx2.ASGITransport(app(gateway or scripted_gateway(Scripted())), raise_app_exceptions=False)
    async with MilesRouter("http://gateway", transport=transport) as router:
        yield router


def trained(sample: Any) -> list[int]:
    """Return the ids of a row that train."""
    ids = sample.tokens[-sample.response_length :]
    return [one for one, mask in zip(ids, sample.loss_mask or (), strict=True) if mask]


def continued(reply: Any, messages: list[Any]) -> list[Any]:
    return [*messages, reply.message, user()]


@WIRES
async def test_messages_go_in_and_every_id_comes_out(later: bool) -> None:
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(later_wire=later))
    async with routed(gateway) as router, router.session() as session:
        first = await session.chat({"messages": HELLO})
        second = await session.chat({"messages": continued(first, HELLO)})
        records = await session.records()
        samples = await session.samples()
    assert first.completion_ids == (500, 501, 2)
    assert first.logprobs == (-0.5,) * 3
    kept = (*first.prompt_ids, *first.completion_ids)
    assert second.prompt_ids[: len(kept)] == kept
    assert [one.prompt_ids for one in records.records] == [first.prompt_ids, second.prompt_ids]
    assert [one.completion_ids for one in records.records] == [first.completion_ids, second.completion_ids]
    assert records.accumulated_ids == (*second.prompt_ids, *second.completion_ids)
    assert records.get(str(first.raw["id"])) == records.records[0]
    (sample,) = samples.samples
    assert sample.tokens == records.accumulated_ids
    assert trained(sample) == [*first.completion_ids, *second.completion_ids]
    logprobs = zip(sample.loss_mask or (), sample.rollout_log_probs or (), strict=True)
    assert [value for mask, value in logprobs if mask] == [-0.5] * 6
    names = [str(one.raw["id"]) for one in (first, second)]
    assert sample.metadata["leaf"]["path_node_ids"] == names
    assert sample.metadata["accumulated_token_ids"] == list(records.accumulated_ids)
    assert sample.nulls == {"rollout_indexer_topk", "rollout_routed_experts"}


@WIRES
async def test_a_session_that_is_gone_is_not_found_wherever_it_is_asked_for(later: bool) -> None:
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(later_wire=later))
    async with routed(gateway) as router, router.session() as session:
        await gateway.sessions.delete(session.id)
        for asking in (session.records(), session.samples(), session.chat({"messages": HELLO})):
            with pytest.raises(SessionNotFoundError, match="answered 404: it has no such session"):
                await asking


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
@WIRES
async def test_an_agent_runs_unchanged_with_its_own_client_over_a_socket(later: bool) -> None:
    engine = Scripted()
    gateway = scripted_gateway(engine, choices=GatewayOptions(later_wire=later, ignore=frozenset(("top_k",))))
    sampling = {"max_new_tokens": 64, "temperature": 1.0, "top_k": -1, "top_p": None}
    async with served(app(gateway)) as url, MilesRouter(url) as router:
        rolled = await router.run(run_agent, HELLO, sampling, metadata={"bonus": 2}, max_seq_len=900)
        assert rolled.error is None
        assert rolled.returned == {"reward": 2.0, "seen": 900}
        (sample,) = rolled.samples.samples
        assert [one for one in sample.tokens if one >= 500] == [500, 501, 502, 503]
        assert sample.reward == 2.0
        assert await gateway.sessions.store.count() == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
async def test_a_rollout_of_the_embedded_engine_through_miles_engine_keeps_its_ids() -> None:
    async with (
        served(app(embedded_gateway())) as url,
        Miles(url) as engine,
    ):
        messages, before = list(HELLO), tuple[int, ...]()
        for _ in range(12):
            reply = await engine.from_messages(messages, Rendering(), Sampling(max_tokens=60))
            assert reply.prompt_ids[: len(before)] == before
            before = (*reply.prompt_ids, *reply.completion_ids)
            messages = continued(reply, messages)
        (talk,) = engine.conversations
        (sample,) = (await talk.session.samples()).samples
    assert sample.tokens == before


@pytest.mark.parametrize(
    ("left_out", "rows", "reason"), [(None, 0, "all_truncated"), (1, 1, None), (-10_000, 1, None)]
)
async def test_samples_are_cut_to_a_length_or_say_why_there_is_none(
    left_out: int | None, rows: int, reason: str | None
) -> None:
    async with routed() as router, router.session() as session:
        assert (await session.samples()).empty_reason == "no_records"
        reply = await session.chat({"messages": HELLO})
        whole = (*reply.prompt_ids, *reply.completion_ids)
        found = await session.samples(1 if left_out is None else len(whole) - left_out)
    assert (len(found.samples), found.empty_reason) == (rows, reason)
    for sample in found.samples:  # a cut inside a turn keeps what fits
        assert sample.tokens == (whole[:-1] if left_out == 1 else whole)
        assert sample.loss_mask == (1,) * (2 if left_out == 1 else 3)


@WIRES
async def test_a_session_s_sampling_holds_for_requests_without(later: bool) -> None:
    engine = Scripted()
    async with routed(scripted_gateway(engine, choices=GatewayOptions(later_wire=later))) as router:
        async with router.session({"temperature": 0.5}) as session:
            await session.chat({"messages": HELLO})
            if later:
                with pytest.raises(RequestError, match="400"):
                    await session.chat({"messages": HELLO, "temperature": 0.7})
        async with router.session({"temperature": 0.5}, evaluation=True) as session:
            await session.chat({"messages": HELLO, "temperature": 0.7})
    found = [sampling.temperature for _, _, sampling in engine.asked]
    assert found == ([0.5, 0.7] if later else [None, 0.7])


@pytest.mark.parametrize("value", ["hot", True, [0.5]])
async def test_a_default_that_is_not_a_number_opens_no_session(value: object) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        answer = await http.post("/sessions", json={"temperature": value})
    assert answer.status_code == 400
    assert "temperature is" in answer.text
    assert "give a number" in answer.text


async def test_what_was_used_since_its_samples_were_taken_is_not_deleted() -> None:
    gateway = scripted_gateway(Scripted())
    async with routed(gateway) as router, client(gateway) as stray:
        session = await router.open()
        await session.chat({"messages": HELLO})
        await session.samples()
        await stray.post(f"/sessions/{session.id}/v1/chat/completions", json={"messages": HELLO})
        with pytest.raises(SessionUsedError):
            await session.delete()
        await session.samples()
        await session.delete()
        with pytest.raises(SessionNotFoundError):
            await MilesSession(session.id, session.wire).records()


@pytest.mark.parametrize("reward", ["1.0", True, [1.0], "nan"])
async def test_a_reward_that_no_trainer_can_read_is_refused(reward: object) -> None:
    async with talking() as talk:
        answer = await talk.post({"metadata": {"reward": reward}}, "/samples")
        assert (answer.status_code, answer.headers["x-should-retry"]) == (400, "false")
        error = f"metadata.reward is {reward!r}: give a finite number, an object of them, or null"
        assert answer.json() == {"error": error, "code": "bad_request"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"metdata": {"reward": 1}}, "metdata is no field of samples: did you mean 'metadata'?"),
        ({"max_seq_ln": 45}, "max_seq_ln is no field of samples: did you mean 'max_seq_len'?"),
        ({"reward": 1}, "reward is not read here: put one number into metadata.reward"),
        ({"rewards": 1.0}, "rewards is not read here: put one number into metadata.reward"),
    ],
)
async def test_fields_of_samples_are_not_misspelled(body: dict[str, Any], words: str) -> None:
    async with talking() as talk:
        answer = await talk.post(body, "/samples")
    assert (answer.status_code, answer.json()) == (400, {"error": words, "code": "bad_request"})


@pytest.mark.parametrize(
    ("path", "body", "status", "counted"),
    [
        ("/samples?max_seq_ln=5", None, 400, None),
        ("/samples?newest=1", None, 200, 'dialect="samples",name="newest"'),
        ("/samples", {"collector": "x"}, 200, 'dialect="samples",name="collector"} 1.0'),
        ("/view?lef=1", None, 400, None),
        ("/view?newest=1", None, 200, 'dialect="view",name="newest"'),
    ],
)
async def test_what_is_not_known_of_a_query_or_of_samples_is_not_ignored_in_silence(
    path: str, body: Any, status: int, counted: str | None
) -> None:
    async with talking() as talk:
        answer = await (talk.get(path) if body is None else talk.post(body, path))
    assert answer.status_code == status
    assert counted is None or counted in talk.metrics


@pytest.mark.parametrize("reward", [0, -1.5, None, {"score": 1.0}])
async def test_a_reward_may_be_a_number_or_several_by_name(reward: object) -> None:
    async with talking() as talk:
        await talk.chat(HELLO)
        body, wanted = {"metadata": {"reward": reward}}, {"accept": "application/json"}
        answer = await talk.post(body, "/samples", headers=wanted)
        assert [sample["reward"] for sample in answer.json()["samples"]] == [reward]


async def test_a_client_sends_no_reward_that_would_become_null() -> None:
    async with routed() as router, router.session() as session:
        with pytest.raises(InputError, match=r"metadata\.reward is nan: give a finite number"):
            await session.samples(metadata={"reward": math.nan})


async def test_errors_have_the_shapes_that_the_client_knows() -> None:
    engine = Scripted(room=5)
    async with routed(scripted_gateway(engine)) as router, router.session() as session:
        engine.raises = [UnreachableError("POST http://engine: nothing answers")]
        with pytest.raises(Exception, match="503"):
            await session.chat({"messages": HELLO})
        first = await session.chat({"messages": HELLO})
        with pytest.raises(OverlongError):
            await session.chat({"messages": continued(first, HELLO)})
        with pytest.raises(SessionNotFoundError):
            await MilesSession("0" * 32, session.wire).chat({"messages": HELLO})


async def test_the_older_wire_tells_ids_unasked_and_overwrites_what_only_it_sets() -> None:
    async with talking(choices=GatewayOptions(later_wire=False)) as talk:
        answer = (await talk.post({"messages": HELLO, "input_ids": [1]})).json()
    pairs = answer["choices"][0]["meta_info"]["output_token_logprobs"]
    assert pairs == [[-0.5, index, None] for index in (500, 501, 2)]


async def test_health_names_the_process() -> None:
    gateway = attrs.evolve(scripted_gateway(Scripted()), instance="f" * 32)
    async with routed(gateway) as router:
        health = await router.health()
    assert (health.status, health.instance_id) == ("ok", "f" * 32)


async def test_a_sample_says_when_each_of_its_turns_came_and_ended() -> None:
    async with routed() as router, router.session() as session:
        first = await session.chat({"messages": HELLO})
        (alone,) = (await session.samples()).samples
        await session.chat({"messages": continued(first, HELLO)})
        (sample,) = (await session.samples()).samples
        (cut,) = (await session.samples(len(first.prompt_ids) + 3)).samples
        records = (await session.records()).metadata["tree"]["nodes"]
    ends = [node["committed_at"] for node in records]
    one, two = sample.metadata["lifecycle"]
    assert alone.metadata["lifecycle"] == cut.metadata["lifecycle"] == one
    assert one == {"t0": None, "t1": ends[0], "turn": 1, "req_ts": one["req_ts"]}
    assert two == {"t0": None, "t1": ends[1], "turn": 2, "req_ts": two["req_ts"], "prev_t1": ends[0]}
    assert one["req_ts"] <= ends[0] <= two["req_ts"] <= ends[1]


async def test_a_record_s_request_has_what_its_prompt_was_rendered_with() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "b"}]}
    engine = Scripted(told={"message": message})
    async with routed(scripted_gateway(engine)) as router, router.session() as session:
        args = {"enable_thinking": False}
        body = {"messages": HELLO, "tools": [tool], "chat_template_kwargs": args, "reasoning_effort": "low"}
        await session.chat(body)
        (record,) = (await session.records()).records
    assert record.request["tools"] == [tool]
    everywhere = {"enable_thinking": False, "thinking": False, "thinking_mode": "disabled"}
    assert record.request["chat_template_kwargs"] == {**everywhere, "reasoning_effort": "low"}
    calls = record.response["choices"][0]["message"]["tool_calls"]
    assert [(one["id"], one["index"]) for one in calls] == [("a", 0), ("b", 1)]


async def test_what_miles_driver_gives_its_agents_is_accepted_and_what_has_no_effect_is_counted() -> None:
    """`skip_special_tokens` is false in every request of theirs, and says nothing of ids."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 9, "no_stop_trim": True}
    given = request_kwargs({**sampling, "skip_special_tokens": False, "spaces_between_special_tokens": False})
    gateway = scripted_gateway(Scripted())
    async with routed(gateway) as router, router.session() as session:
        assert (await session.chat({"messages": HELLO, **given})).completion_ids == (500, 501, 2)
    assert b"skip_special_tokens" in gateway.metrics.text()


@pytest.mark.parametrize("one", [False, True])
async def test_a_session_can_have_one_sample_whatever_was_retried(one: bool) -> None:
    """Miles' first driver unpacks exactly one; which turns are on its path is what the records show."""
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(one_sample=one))
    async with routed(gateway) as router, router.session() as session:
        first = await session.chat({"messages": HELLO})
        second = await session.chat({"messages": continued(first, HELLO)})
        last = await session.chat({"messages": [*HELLO, first.message, user("other")]})
        found, records = await session.samples(), await session.records()
    assert len(found.samples) == (1 if one else 2)
    assert found.session_metadata.get("leaves_left_out") == (1 if one else None)
    turns = (first, last) if one else (first, second, last)
    sampled = [index for sample in found.samples for index in trained(sample)]
    assert sorted(sampled) == sorted(index for turn in turns for index in turn.completion_ids)
    if one:
        assert found.samples[0].tokens == records.accumulated_ids == (*last.prompt_ids, *last.completion_ids)


@WIRES
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/chat/completions", {"messages": 1}, 400),
        ("POST", "/v1/chat/completions", None, 400),
        ("GET", "/v1/unknown", None, 404),
        ("PATCH", "", None, 405),
    ],
)
async def test_errors_of_session_routes_are_texts_in_the_older_wire(
    later: bool, method: str, path: str, body: Any, status: int
) -> None:
    """Elsewhere they are objects, in which OpenAI's clients find a text and a code."""
    async with talking(choices=GatewayOptions(later_wire=later)) as talk:
        http = talk.http
        answer = await http.request(method, f"/sessions/{talk.name}{path}", json=body)
        assert answer.status_code == status, answer.text
        assert isinstance(answer.json()["error"], dict if later and path else str)
        missing = await http.post(f"/sessions/{'0' * 32}{CHAT}", json={"messages": HELLO})
        error = missing.json()["error"]
        text = f"session not found: session_id={'0' * 32}{ENDED}"
        assert (error["message"] if later else error) == text
        assert (await talk.post({"messages": 1}, "/v1/messages")).json()["type"] == "error"
        assert isinstance((await http.get("/v1/unknown")).json()["error"], dict)


async def test_an_answer_has_the_fields_of_sglang_that_were_asked_for() -> None:
    async with talking(Scripted(stop_reason="END")) as talk:
        plain = await talk.chat(HELLO)
        asked = {"return_prompt_token_ids": True, "n": 2}
        ids = await talk.chat(HELLO, **asked)
        info = await talk.chat(HELLO, return_meta_info=True)
    added = {"matched_stop", "prompt_token_ids", "meta_info"}
    assert not added & plain["choices"][0].keys()
    for one in ids["choices"]:
        assert added & one.keys() == {"matched_stop", "prompt_token_ids"}
        assert (one["prompt_token_ids"], one["matched_stop"]) == (toy(HELLO), "END")
    assert info["choices"][0]["meta_info"]["finish_reason"] == {"type": "stop", "matched": "END"}
    assert "prompt_token_ids" not in info["choices"][0]


@pytest.mark.parametrize("field", ["input_ids", "routed_experts_start_len", "logprob_start_len"])
async def test_each_field_that_only_the_server_sets_is_refused_by_the_later_wire(field: str) -> None:
    for later in (True, False):
        choices = GatewayOptions(later_wire=later, strict=True)
        async with talking(choices=choices) as talk:
            answer = await talk.post({"messages": HELLO, field: 1})
            assert answer.status_code == (400 if later else 200)
            assert (await talk.post({"messages": HELLO, field: None})).status_code == 200
        assert not later or answer.json()["error"]["param"] == field


@pytest.mark.parametrize(
    "field",
    [
        *("return_meta_info", "return_prompt_token_ids"),
        *("no_stop_trim", "return_logprob", "return_routed_experts", "return_indexer_topk"),
    ],
)
async def test_fields_of_sglang_are_no_fields_of_a_chat(field: str) -> None:
    async with talking(choices=GatewayOptions(strict=True)) as talk:
        answer = await talk.said(HELLO, **{field: True})
    assert answer["content"] == "ok"
    assert b"tito_ignored_total{" not in talk.gateway.metrics.text()


@pytest.mark.parametrize(("field", "value"), [("temperature", 0.5), ("top_p", 0.25), ("top_k", 7)])
async def test_each_default_of_a_session_holds_for_its_chats(field: str, value: float) -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http, **{field: value}, other=3)
        await chat(http, name, HELLO)
        await chat(http, name, HELLO, **{field: value})
    sampled = [sampling for _, _, sampling in engine.asked]
    assert sampled[0] == sampled[1]
    assert getattr(sampled[0], field, sampled[0].extra.get(field)) == value
