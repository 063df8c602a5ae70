"""Items that a client names by their ids are those that the session answered, and go on by ids."""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.serve.gateway import Scripted, Talk, talking

pytestmark = pytest.mark.anyio
RESPONSES = "/v1/responses"
ASKED = {"role": "user", "content": "How wide?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"path": "a"}'}}
WHOLE = {"role": "assistant", "content": "I look.", "reasoning": "Where?", "tool_calls": [CALL]}
TURNS: dict[str, dict[str, Any]] = {
    "text": {"message": {"role": "assistant", "content": "ten"}},
    "all": {"message": WHOLE, "finish_reason": "tool_calls"},
    "reasoning and call": {"message": {**WHOLE, "content": ""}, "finish_reason": "tool_calls"},
}


async def answered(talk: Talk, items: list[Any], **more: Any) -> Any:
    answer = await talk.post({"input": items, **more}, RESPONSES)
    assert answer.status_code == 200, answer.text
    return answer.json()


def named(item: Any, *, typed: bool = True) -> dict[str, Any]:
    return {**({"type": "item_reference"} if typed else {}), "id": item["id"]}


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("kind", TURNS)
async def test_an_item_is_named_by_its_id_also_after_a_restart(kind: str, typed: bool) -> None:
    async with talking(Scripted(told=TURNS[kind])) as talk:
        first = await answered(talk, [ASKED])
        talk.unload()  # so that it is read from the store
        talk.engine.told = {}
        result = {"type": "function_call_output", "call_id": "c1", "output": "10"}
        new = result if "tool_calls" in TURNS[kind]["message"] else ASKED
        items = [ASKED, *(named(one, typed=typed) for one in first["output"]), new]
        await answered(talk, items)
        one, other = await talk.commits()
    assert other.origin.route == "TITO"
    assert other.step.prompt_ids.starts_with(one.step.ids)
    assert other.step.prompt[1] == one.step.completion[0]


@pytest.mark.parametrize(
    ("tool", "call"),
    [
        ({"type": "custom", "name": "patch"}, {"name": "patch", "arguments": '{"input": "+a"}'}),
        (
            {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
            {"name": "tool_search", "arguments": '{"query": "a"}'},
        ),
        (
            {
                "type": "namespace",
                "name": "web",
                "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
            },
            {"name": "web__look", "arguments": "{}"},
        ),
    ],
)
async def test_a_call_of_a_tool_that_is_no_function_is_named_by_its_id(tool: Any, call: Any) -> None:
    calling = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "function": call}]}
    async with talking(Scripted(told={"message": calling, "finish_reason": "tool_calls"})) as talk:
        first = await answered(talk, [ASKED], tools=[tool])
        talk.engine.told = {}
        result = {"type": "function_call_output", "call_id": "c1", "output": "10"}
        await answered(talk, [ASKED, *map(named, first["output"]), result], tools=[tool])
        assert [one.origin.route for one in await talk.commits()] == ["MITO", "TITO"]


async def test_a_summary_is_named_by_its_id() -> None:
    async with talking(Scripted(text="So far: ten.")) as talk:
        first = await answered(talk, [ASKED, {"type": "compaction_trigger"}])
        sent = [named(first["output"][0]), ASKED], [first["output"][0], ASKED]
        by_name, whole = [(await answered(talk, items)) for items in sent]
        _, one, other = await talk.commits()
    assert by_name["status"] == whole["status"] == "completed"
    assert list(one.step.prompt) == list(other.step.prompt)


@pytest.mark.parametrize("name", ["msg_resp_0", "rs_1", "", None, 3, ["a"]])
async def test_an_unknown_item_is_404_by_name(name: Any) -> None:
    async with talking() as talk:
        items = [ASKED, {"type": "item_reference", "id": name}]
        answer = await talk.post({"input": items}, RESPONSES)
        assert (answer.status_code, len(talk.engine.asked)) == (404, 0), answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("item_not_found", "input[1].id")
    assert f"Item with id {name!r} not found in this session" in error["message"]


async def test_an_item_of_another_session_is_unknown() -> None:
    async with talking() as talk:
        first = await answered(talk, [ASKED])
        other = Talk(talk.gateway, talk.http, (await talk.http.post("/sessions")).json()["session_id"])
        answer = await other.post({"input": [ASKED, named(first["output"][0]), ASKED]}, RESPONSES)
        assert answer.status_code == 404


async def test_items_of_a_stream_are_named_by_their_ids() -> None:
    async with talking(Scripted(told=TURNS["text"])) as talk:
        streamed = await talk.post({"input": [ASKED], "stream": True}, RESPONSES)
        name = "msg_" + (await talk.commits())[0].response
        assert f'"id":"{name}"' in streamed.text
        await answered(talk, [ASKED, {"type": "item_reference", "id": name}, ASKED])
        assert [one.origin.route for one in await talk.commits()] == ["MITO", "TITO"]
