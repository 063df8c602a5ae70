"""A turn that was cut short goes on from its very ids, and the next one from both."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

from tests.io.serve.gateway import (
    HELLO,
    Reporting,
    Scripted,
    chat,
    client,
    embedded_gateway,
    opened,
    scripted_gateway,
    user,
)
from tito_core.samples import make_rows
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


def said(answer: Any) -> Any:
    return answer["choices"][0]["message"]


def together(*answers: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "".join(said(one)["content"] for one in answers)}


@pytest.mark.parametrize("before", [[], [user("first"), {"role": "assistant", "content": "ok"}]])
@pytest.mark.parametrize("cut", [True, False])
async def test_a_turn_goes_on_and_trains_once(cut: bool, before: list[Any]) -> None:
    engine, store = Scripted(), MemoryStore()
    gateway = scripted_gateway(engine, store)
    async with client(gateway) as http:
        name = await opened(http)
        if before:
            await chat(http, name, before[:1])
        engine.finish, engine.text = ("length" if cut else "stop"), "He"
        first = await chat(http, name, [*before, *HELLO])
        engine.finish, engine.text = "stop", "llo"
        second = await chat(http, name, [*before, *HELLO, together(first)], continue_final_message=True)
        assert said(second)["content"] == "llo"
        third = [*before, *HELLO, together(first, second), user()]
        await chat(http, name, third)
        assert engine.asked[-1][0] == "ids"
        async with gateway.sessions.using(name) as session:
            one, other, last = list(session.commits.values())[-3:]
            rows = make_rows(session.forest).rows
        gateway.sessions._loaded.clear()
        async with gateway.sessions.using(name) as again:
            assert make_rows(again.forest).rows == rows
    sampled = one.step.ids.tolist() if cut else one.step.ids.tolist()[:-1]
    assert other.step.prompt_ids == sampled
    assert last.step.prompt_ids.starts_with(other.step.ids)
    trained = [i for row in rows for i, mask in zip(row.ids, row.loss_mask, strict=True) if mask and i != 2]
    assert len(trained) == len(set(trained)) == engine.sampled


async def test_the_embedded_engine_s_cut_turns_go_on() -> None:
    gateway = embedded_gateway()
    async with client(gateway) as http:
        name = await opened(http)
        parts = [await chat(http, name, HELLO, max_tokens=8, seed=2)]
        for _ in range(3):
            if parts[-1]["choices"][0]["finish_reason"] != "length":
                break
            message = together(*parts)
            thoughts = "".join(said(one).get("reasoning") or "" for one in parts)
            message |= {"reasoning": thoughts} if thoughts else {}
            parts.append(await chat(http, name, [*HELLO, message], max_tokens=8, continue_final_message=True))
        async with gateway.sessions.using(name) as session:
            assert len(session.forest.leaves) == 1
            assert len(session.commits) == len(parts) > 1


@pytest.mark.parametrize(
    "last", [{"role": "assistant", "content": "mine"}, user(), {"role": "assistant", "content": "ok "}]
)
async def test_what_was_not_sampled_here_does_not_go_on(last: dict[str, Any]) -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        body = {"messages": [*HELLO, last], "continue_final_message": True}
        answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
        assert answer.status_code == 400
        assert "continue_final_message" in answer.json()["error"]["message"]
        assert len((await http.get(f"/sessions/{name}")).json()["records"]) == 1
    assert len(engine.asked) == 1


async def test_a_turn_that_goes_on_is_streamed_and_a_client_that_leaves_changes_nothing() -> None:
    engine = Scripted(finish="length", text="He")
    gateway = scripted_gateway(engine)
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        engine.text, engine.held = "llo", anyio.Event()
        body = {"messages": [*HELLO, together(first)], "continue_final_message": True, "stream": True}
        with anyio.move_on_after(0.1):
            await http.post(f"/sessions/{name}{CHAT}", json=body)
        engine.held.set()
        answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
        assert '"content":"llo"' in answer.text or '"content":"l"' in answer.text
        async with gateway.sessions.using(name) as session:
            assert len(session.commits) == 2


async def test_a_message_behind_a_turn_is_no_turn() -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        body = {"messages": [*HELLO, said(first), user()], "continue_final_message": True}
        answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
    assert answer.status_code == 400
    assert len(engine.asked) == 1


async def test_what_the_engine_gives_up_is_no_turn() -> None:
    engine = Scripted(finish="length")
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        engine.finish = "abort"
        body = {"messages": [*HELLO, said(first)], "continue_final_message": True}
        answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "AbortedError")
        assert len((await http.get(f"/sessions/{name}")).json()["records"]) == 1


async def test_a_turn_that_calls_is_followed_by_results() -> None:
    class Calls(Scripted):
        def _turn(self, prompt: list[int], n: int) -> Any:
            calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
            message = {"role": "assistant", "content": "", "tool_calls": calls}
            return attrs.evolve(super()._turn(prompt, n), message=message, finish_reason="tool_calls")

    async with client(scripted_gateway(Calls())) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        body = {"messages": [*HELLO, said(first)], "continue_final_message": True}
        answer = await http.post(f"/sessions/{name}{CHAT}", json=body)
    assert answer.status_code == 400
    assert "send their results" in answer.json()["error"]["message"]


async def test_a_turn_that_a_stop_string_ended_does_not_go_on() -> None:
    """Its last ids are text that the client never got: to take one off would be to lose a sampled id."""
    engine = Scripted()
    engine.stop_reason = "\nObservation:"
    async with client(scripted_gateway(engine, MemoryStore())) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        body = {"messages": [*HELLO, together(first)], "continue_final_message": True}
        answer = await http.post(f"/sessions/{name}/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert "stop string" in answer.text
        assert len(engine.asked) == 1


async def test_a_turn_that_goes_on_with_calls_has_them() -> None:
    """The next request repeats one message with the text of both turns, and is recognised by its calls."""
    gateway = scripted_gateway(Reporting(stop_reason=2))
    async with client(gateway) as http:
        name = await opened(http)
        first = await chat(http, name, HELLO)
        second = await chat(http, name, [*HELLO, said(first)], continue_final_message=True)
        calls = said(second)["tool_calls"]
        assert [call["function"]["name"] for call in calls] == ["f"]
        whole = {**together(first, second), "tool_calls": calls}
        result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "7"}
        await chat(http, name, [*HELLO, whole, result])
        async with gateway.sessions.using(name) as session:
            commits = list(session.commits.values())
    assert commits[1].step.completion[0]["tool_calls"] == calls
    assert [commit.origin.route for commit in commits] == ["MITO", "TITO", "TITO"]
