"""The model that answers name, and what is kept of each turn of a request."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import attrs
import pytest

from tests.io.serve.gateway import HELLO, Scripted, chat, client, opened, talking, user
from tito_core.samples import RoutedExperts, StoredCall, WeightVersion
from tito_io.engines.http_engine import ServedModel
from tito_io.engines.protocol import Reply
from tito_io.serve.gateway import build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio


@attrs.define
class Named(Scripted):
    """An engine that says which model it serves."""

    questions: int = 0

    async def served(self) -> ServedModel:
        self.questions += 1
        return ServedModel(name="the engine's")


@pytest.mark.parametrize(("model", "questions"), [("ours", 0), ("", 1)])
async def test_an_engine_is_asked_once_for_its_model_where_nobody_named_it(
    model: str, questions: int
) -> None:
    engine = Named()
    async with client(build_gateway(engine, MemoryStore(), model=model)) as http:
        for _ in range(2):
            answer = await chat(http, await opened(http), HELLO)
            assert answer["model"] == (model or "the engine's")
    assert engine.questions == questions


async def test_an_engine_that_serves_no_model_by_name_gives_its_own() -> None:
    async with talking(build_gateway(Scripted(), MemoryStore(), model="")) as talk:
        assert (await talk.chat(HELLO))["model"] == "scripted"


ENDS: list[dict[str, Any]] = [
    {"finish_reason": "stop", "stop_reason": 2},
    {"finish_reason": "length", "stop_reason": None},
    {"finish_reason": "stop", "stop_reason": "END"},
]


@attrs.define
class Differing(Scripted):
    """An engine whose turns of one request differ in everything but the prompt."""

    replies: list[Reply] = attrs.field(factory=list)

    def one_turn(self, prompt: list[int], n: int) -> Reply:
        place = len(self.replies)
        experts = RoutedExperts(data=bytes([place] * len(prompt)), dtype="uint8", shape=(len(prompt), 1, 1))
        own = {
            **ENDS[place % len(ENDS)],
            "logprobs": (-0.5 - place, -1.0, -1.5),
            "message": {"role": "assistant", "content": f"said {place}"},
            "request_id": f"request {place}",
            "worker": f"worker {place}",
            "weight_versions": (WeightVersion(version=f"step {place}", start=0, stop=3),),
            "routed_experts": experts,
        }
        self.replies.append(attrs.evolve(super().one_turn(prompt, n), **own))
        return self.replies[-1]


def kept_of_reply(reply: Reply) -> dict[str, Any]:
    return {
        "ids": list(reply.completion_ids),
        "logprobs": reply.logprobs,
        "message": reply.message,
        "end": (reply.finish_reason, reply.truncated, reply.stop_reason),
        "where": (reply.request_id, reply.worker),
        "by": (reply.weight_versions, reply.routed_experts),
    }


def kept_of_call(call: StoredCall, origin: Any) -> dict[str, Any]:
    return {
        "ids": list(call.step.completion_ids),
        "logprobs": call.step.logprobs,
        "message": call.step.completion[0],
        "end": (call.finish_reason, call.step.truncated, origin.stop_reason),
        "where": (origin.engine_request, origin.worker),
        "by": (call.weight_versions, call.routed_experts),
    }


async def test_each_turn_of_a_request_is_kept_with_its_own_ids_and_its_own_end() -> None:
    engine, store = Differing(), MemoryStore()
    async with talking(engine, store=store) as talk:
        answer = await talk.chat(HELLO, n=3)
        talk.unload()  # so that it is read from the store
        kept = [kept_of_call(one.call, one.origin) for one in await talk.commits()]
    assert kept == list(map(kept_of_reply, engine.replies))
    shown = [(one["finish_reason"], one["stop_reason"]) for one in answer["choices"]]
    assert shown == [(one["finish_reason"], one["stop_reason"]) for one in ENDS]


async def test_each_turn_that_continues_a_message_is_kept_with_its_own_end() -> None:
    async with talking(Differing()) as talk:
        said = await talk.said(HELLO)
        await talk.chat([*HELLO, said], n=3, continue_final_message=True)
        kept = [kept_of_call(one.call, one.origin) for one in await talk.commits()]
    wanted = list(map(kept_of_reply, talk.engine.replies))
    for one in wanted[1:]:
        one["message"] = {**one["message"], "content": f"said 0{one['message']['content']}"}
    assert kept == wanted


async def test_only_the_turns_of_a_request_that_a_stop_string_ended_go_on_after_their_texts() -> None:
    """Their ids spell the stop string, which their texts lack: to take one off would lose a sampled id."""
    async with talking(Differing()) as talk:
        answer = await talk.chat(HELLO, n=3)
        for choice in answer["choices"]:
            await talk.chat([*HELLO, choice["message"]], continue_final_message=True)
        routes = [one.origin.route for one in (await talk.commits())[3:]]
    assert routes == ["TITO", "TITO", "RENDERED"]


async def test_all_turns_of_a_session_have_one_name_that_does_not_reveal_its_id() -> None:
    """Routers send what has one name to one worker."""
    async with talking() as talk:
        await talk.chat([*HELLO, await talk.said(HELLO), user()])
    named = [sampling.conversation for _, _, sampling in talk.engine.asked]
    assert named == [sha256(talk.name.encode()).hexdigest()[:32]] * 2
