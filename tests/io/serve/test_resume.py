"""A turn that was cut short goes on from its very ids, and the next one from both."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.io.serve.gateway import HELLO, Reporting, Scripted, embedded_gateway, talking, user
from tito_core.samples import make_rows

pytestmark = pytest.mark.anyio
CHAT = "/v1/chat/completions"


def together(*answers: Any) -> dict[str, Any]:
    """Return one message with the texts of several."""
    return {"role": "assistant", "content": "".join(one["content"] for one in answers)}


@pytest.mark.parametrize("before", [[], [user("first"), {"role": "assistant", "content": "ok"}]])
@pytest.mark.parametrize("cut", [True, False])
async def test_a_turn_goes_on_and_trains_once(cut: bool, before: list[Any]) -> None:
    async with talking() as talk:
        engine, prompt = talk.engine, [*before, *HELLO]
        if before:
            await talk.chat(before[:1])
        engine.finish, engine.text = ("length" if cut else "stop"), "He"
        first = await talk.said(prompt)
        engine.finish, engine.text = "stop", "llo"
        second = await talk.said([*prompt, together(first)], continue_final_message=True)
        assert second["content"] == "llo"
        await talk.chat([*prompt, together(first, second), user()])
        assert engine.asked[-1][0] == "ids"
        one, other, last = (await talk.commits())[-3:]
        rows = make_rows((await talk.session()).forest).rows
        talk.unload()
        assert make_rows((await talk.session()).forest).rows == rows
    sampled = one.step.ids.tolist() if cut else one.step.ids.tolist()[:-1]
    assert other.step.prompt_ids == sampled
    assert last.step.prompt_ids.starts_with(other.step.ids)
    trained = [i for row in rows for i, mask in zip(row.ids, row.loss_mask, strict=True) if mask and i != 2]
    assert len(trained) == len(set(trained)) == engine.sampled


async def test_the_embedded_engine_s_cut_turns_go_on() -> None:
    async with talking(embedded_gateway()) as talk:
        parts: list[Any] = [await talk.chat(HELLO, max_tokens=8, seed=2)]
        for _ in range(3):
            if parts[-1]["choices"][0]["finish_reason"] != "length":
                break
            messages = [one["choices"][0]["message"] for one in parts]
            thoughts = "".join(one.get("reasoning") or "" for one in messages)
            message = together(*messages) | ({"reasoning": thoughts} if thoughts else {})
            parts.append(await talk.chat([*HELLO, message], max_tokens=8, continue_final_message=True))
        session = await talk.session()
    assert len(session.forest.leaves) == 1
    assert len(session.commits) == len(parts) > 1


SAID = {"role": "assistant", "content": "ok"}


CALLS = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


CALLING = {"role": "assistant", "content": "", "tool_calls": CALLS}


@pytest.mark.parametrize(
    ("engine", "last", "words"),
    [
        *(({}, [one], "continue_final_message") for one in (user(), {**SAID, "content": "mine"})),
        ({}, [{**SAID, "content": "ok "}], "continue_final_message"),
        ({}, [SAID, user()], "continue_final_message"),
        ({"told": {"message": CALLING, "finish_reason": "tool_calls"}}, [CALLING], "send their results"),
        # Its last ids are text that the client never got: to take one off would be to lose a sampled id.
        ({"stop_reason": "\nObservation:"}, [SAID], "stop string"),
    ],
)
async def test_what_cannot_go_on_is_refused_before_anything_is_sampled(
    engine: dict[str, Any], last: list[Any], words: str
) -> None:
    async with talking(Scripted(**engine)) as talk:
        await talk.chat(HELLO)
        answer = await talk.post({"messages": [*HELLO, *last], "continue_final_message": True})
        assert (answer.status_code, words in answer.json()["error"]["message"]) == (400, True), answer.text
        assert len(await talk.nodes()) == len(talk.engine.asked) == 1


async def test_a_turn_that_goes_on_is_streamed_and_one_that_is_not_received_changes_nothing() -> None:
    async with talking(Scripted(finish="length", text="He")) as talk:
        body = {"messages": [*HELLO, await talk.said(HELLO)], "continue_final_message": True}
        talk.engine.finish = "abort"
        answer = await talk.post(body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "AbortedError")
        talk.engine.finish, talk.engine.text, talk.engine.held = "length", "llo", anyio.Event()
        with anyio.move_on_after(0.1):
            await talk.post({**body, "stream": True})
        assert len(await talk.nodes()) == 1
        talk.engine.go_on()
        answer = await talk.post({**body, "stream": True})
        assert '"content":"llo"' in answer.text or '"content":"l"' in answer.text
        assert len(await talk.nodes()) == 2


async def test_a_turn_that_goes_on_with_calls_has_them() -> None:
    """The next request repeats one message with the text of both turns, and is recognised by its calls."""
    async with talking(Reporting(stop_reason=2)) as talk:
        first = await talk.said(HELLO)
        second = await talk.said([*HELLO, first], continue_final_message=True)
        calls = second["tool_calls"]
        assert [call["function"]["name"] for call in calls] == ["f"]
        whole = {**together(first, second), "tool_calls": calls}
        result = {"role": "tool", "tool_call_id": calls[0]["id"], "content": "7"}
        await talk.chat([*HELLO, whole, result])
        commits = await talk.commits()
    assert commits[1].step.completion[0]["tool_calls"] == calls
    assert [commit.origin.route for commit in commits] == ["MITO", "TITO", "TITO"]
