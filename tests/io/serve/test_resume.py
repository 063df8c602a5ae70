"""A turn that was cut short goes on from its very ids, and the next one from both."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.io.serve.gateway import (
    HELLO,
    Naming,
    Reporting,
    Scripted,
    embedded_gateway,
    named,
    talking,
    toy,
    user,
)
from tito_core import Origin
from tito_core.samples import make_rows
from tito_io.embedded.vocabulary import family

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
        ({}, [user()], "the last message is not the assistant's; leave it out"),
        ({}, [SAID, user()], "the last message is not the assistant's; leave it out"),
        ({}, [{**SAID, "content": ""}], "is not one text; leave it out"),
        ({}, [{**SAID, "content": [{"type": "text", "text": one} for one in "ab"]}], "is not one text"),
        ({"told": {"message": CALLING, "finish_reason": "tool_calls"}}, [CALLING], "send their results"),
        ({}, [{**CALLING, "content": "mine"}], "the last message calls tools; send their results"),
    ],
)
async def test_what_cannot_go_on_is_refused_before_anything_is_sampled(
    engine: dict[str, Any], last: list[Any], words: str
) -> None:
    async with talking(Scripted(**engine)) as talk:
        await talk.chat(HELLO)
        answer = await talk.post({"messages": [*HELLO, *last], "continue_final_message": True})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "continue_final_message"), answer.text
        assert error["message"].startswith("continue_final_message: ")
        assert words in error["message"]
        assert len(await talk.nodes()) == len(talk.engine.asked) == 1


async def test_a_turn_that_goes_on_is_streamed_and_one_that_is_not_received_changes_nothing() -> None:
    async with talking(Scripted(finish="length", text="He")) as talk:
        body = {"messages": [*HELLO, await talk.said(HELLO)], "continue_final_message": True}
        talk.engine.finish = "abort"
        answer = await talk.post(body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_aborted")
        talk.engine.finish, talk.engine.text, talk.engine.held = "length", "llo", anyio.Event()
        with anyio.move_on_after(0.1):
            await talk.post({**body, "stream": True})
        assert len(await talk.nodes()) == 1
        talk.engine.go_on()
        answer = await talk.post({**body, "stream": True})
        assert '"content":"llo"' in answer.text or '"content":"l"' in answer.text
        assert len(await talk.nodes()) == 2


async def test_a_turn_that_goes_on_with_calls_has_them() -> None:
    """The next request repeats one message with the text of both turns, and is recognized by its calls."""
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


OPENED = {"role": "assistant", "content": "He"}
BLOCK = [{"type": "text", "text": "He"}]
ALL_APIS: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"messages": [*HELLO, OPENED], "continue_final_message": True}, "continue_final_message"),
    (CHAT, {"messages": [*HELLO, {**OPENED, "content": BLOCK, "partial": True}]}, "messages[1].partial"),
    (CHAT, {"messages": [*HELLO, {**OPENED, "prefix": True}]}, "messages[1].prefix"),
    ("/v1/messages", {"messages": [*HELLO, {**OPENED, "content": BLOCK}], "max_tokens": 9}, "messages[1]"),
    (
        "/v1beta/models/m:generateContent",
        {
            "contents": [
                {"role": "user", "parts": [{"text": HELLO[0]["content"]}]},
                {"role": "model", "parts": [{"text": "He"}]},
            ]
        },
        "contents[1]",
    ),
]


def streamed_path(path: str) -> str:
    return path.replace(":generateContent", ":streamGenerateContent?alt=sse")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("path", "body"), [(path, body) for path, body, _ in ALL_APIS])
async def test_a_text_that_was_not_sampled_here_begins_the_answer_and_does_not_train(
    path: str, body: dict[str, Any], streamed: bool
) -> None:
    """Every API answers with what is new alone; the stored turn has both, and goes on by ids."""
    async with talking(Scripted(text="llo")) as talk:
        google = "generateContent" in path
        sent = {**body, "stream": True} if streamed and not google else body
        answer = await talk.post(sent, streamed_path(path) if streamed else path)
        assert answer.status_code == 200, answer.text
        assert ("He" in answer.text, "llo" in answer.text or '"l' in answer.text) == (False, True), (
            answer.text
        )
        await talk.chat([*HELLO, {"role": "assistant", "content": "Hello"}, user()])
        first, second = await talk.commits()
        (row,) = make_rows((await talk.session()).forest).rows
        talk.unload()
        (stored,) = make_rows((await talk.session()).forest).rows
    opened = [*toy(HELLO), *(10 + byte for byte in b"He")]
    assert first.step.prompt_ids == opened
    assert {*first.step.prompt_ledger} == {Origin.PROMPT}
    assert (first.step.completion[0]["content"], first.origin.route) == ("Hello", "RENDERED")
    assert second.step.prompt_ids.starts_with(first.step.ids)
    assert second.origin.route == "TITO"
    assert not any(row.loss_mask[: len(opened)])
    assert sum(row.loss_mask) == 6
    assert stored == row


@pytest.mark.parametrize("cut", [False, True])
async def test_an_answer_is_begun_after_the_ids_of_the_turns_before(cut: bool) -> None:
    """What was sampled keeps its ids; the beginning of the answer stands behind them, and is prompt."""
    async with talking(Scripted(finish="length" if cut else "stop")) as talk:
        said = await talk.said(HELLO)
        talk.engine.finish = "stop"
        prompt = [*HELLO, said, user()]
        await talk.chat([*prompt, {**OPENED, "prefix": True}])
        await talk.chat([*prompt, {**OPENED, "content": "Heok"}, user("And?")])
        await talk.chat([*prompt, user("Or?")])
        commits = await talk.commits()
        rows = make_rows((await talk.session()).forest).rows
    assert [one.origin.route for one in commits] == ["MITO", "TITO", "TITO", "TITO"]
    first, second, third, fourth = (one.step for one in commits)
    assert second.prompt_ids.starts_with(first.ids)
    opened = [1, 9, 10 + ord("H"), 10 + ord("e")]
    assert second.prompt_ids.tolist()[-4:] == opened
    assert second.prompt_ledger.runs[-1] == (Origin.PROMPT, 4)
    assert third.prompt_ids.starts_with(second.ids)
    assert fourth.prompt_ids.tolist()[-2:] == [1, 9]  # what is known of an opened answer is of none other
    trained = [i for row in rows for i, mask in zip(row.ids, row.loss_mask, strict=True) if mask and i != 2]
    assert len(trained) == len(set(trained)) == talk.engine.sampled


@pytest.mark.parametrize(("path", "body", "field"), ALL_APIS)
async def test_an_error_names_the_field_by_which_an_answer_is_begun(
    path: str, body: dict[str, Any], field: str
) -> None:
    constrained: dict[str, Any] = {"response_format": {"type": "json_object"}}
    if path == "/v1/messages":
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        constrained = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    if "generateContent" in path:
        constrained = {"generationConfig": {"responseMimeType": "application/json"}}
    async with talking() as talk:
        answer = await talk.post({**body, **constrained}, path)
        assert (answer.status_code, len(talk.engine.asked)) == (400, 0), answer.text
    message = answer.json()["error"]["message"]
    assert message == f"{field}: a turn that is continued cannot be constrained; leave it out"


@pytest.mark.parametrize("content", ["He", "ok"])
async def test_an_engine_that_keeps_ids_itself_goes_on_with_no_message(content: str) -> None:
    async with talking(Scripted(keeps_ids=True)) as talk:
        await talk.chat(HELLO)
        answer = await talk.post({"messages": [*HELLO, {**SAID, "content": content, "partial": True}]})
        assert (answer.status_code, len(talk.engine.asked)) == (400, 1)
    why = "scripted keeps ids itself, and goes on with no message; leave it out"
    assert answer.json()["error"]["message"] == f"messages[1].partial: {why}"


async def test_no_answer_is_begun_behind_images_that_go_by_messages() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    asked = {"role": "user", "content": [image]}
    async with talking() as talk:
        answer = await talk.post({"messages": [asked, {**OPENED, "prefix": True}]})
        assert (answer.status_code, len(talk.engine.asked)) == (400, 0)
    message = answer.json()["error"]["message"]
    assert message.startswith("messages[1].prefix: scripted takes these images by messages")


async def test_a_template_that_takes_no_beginning_of_an_answer_is_named() -> None:
    async with talking(Scripted(renders=False)) as talk:
        answer = await talk.post({"messages": [*HELLO, {**OPENED, "prefix": True}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages[1].prefix")


@pytest.mark.parametrize("guarded", [False, True])
async def test_the_embedded_engine_goes_on_behind_a_text(guarded: bool) -> None:
    """The template writes the text where its generation prompt stands, here and on the engine's route."""
    async with talking(embedded_gateway(guarded=guarded)) as talk:
        said = await talk.said(HELLO, max_tokens=8)
        prompt = [*HELLO, said, user()]
        for place in (1, 3):
            begun = [*prompt[:place], {**OPENED, "content": '{"river":', "partial": True}]
            answer = await talk.chat(begun, max_tokens=8, return_token_ids=True)
            ids = answer["prompt_token_ids"]
            assert family().decode(ids).endswith('<|turn|>assistant\n<think>\n\n</think>\n\n{"river":')
        first, second, third = (one.step for one in await talk.commits())
    assert second.prompt_ids == family().ids([*HELLO, begun[-1]], continue_final_message=True)
    assert third.prompt_ids.starts_with(first.ids)


@pytest.mark.parametrize("reads", [False, True])
async def test_a_turn_under_another_name_goes_on_by_ids_where_the_template_does_not_read_it(
    reads: bool,
) -> None:
    async with talking(Naming(finish="length") if reads else Scripted(finish="length")) as talk:
        first = await talk.said(HELLO)
        await talk.chat([*HELLO, {**named(together(first)), "partial": True}])
        commits = await talk.commits()
    assert [commit.origin.route for commit in commits] == ["MITO", "RENDERED" if reads else "TITO"]
