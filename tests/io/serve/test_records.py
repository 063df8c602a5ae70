"""Records of a session: each with the whole conversation, written at the cost of what is new in it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import orjson
import pytest

from tests.io.serve.gateway import HELLO, Reporting, Scripted, Talk, talking, user
from tito_core.samples import make_rows
from tito_io.dialects.wire import dumps
from tito_io.samples.read import StoredConversation, conversations
from tito_io.serve import records
from tito_io.serve.records import session_records
from tito_io.serve.session import Session

pytestmark = pytest.mark.anyio
TURNS = 6


async def conversation(talk: Talk) -> list[Any]:
    """Take some turns; return the messages of the last prompt."""
    messages: list[Any] = list(HELLO)
    for turn in range(1, TURNS):
        messages = [*messages, await talk.said(messages), user(f"And {turn}?")]
    await talk.chat(messages)
    return messages


@pytest.mark.parametrize("renders_as", ["", "sglang"])
async def test_a_call_has_only_what_is_new_in_it_and_the_engine_whose_prompts_it_has(renders_as: str) -> None:
    """An engine that changes no messages is not named."""
    engine = type("As", (Scripted,), {"renders_as": renders_as} if renders_as else {})()
    async with talking(engine) as talk:
        await conversation(talk)
        lines = [orjson.loads(one) for one in (await talk.get("/calls")).content.splitlines()]
    assert [one.get("engine", "") for one in lines] == [renders_as] * TURNS
    sizes = [len(one["call"]["step"]["prompt"]) for one in lines]
    assert sizes == [len(HELLO), *[1] * (TURNS - 1)]


async def test_an_empty_session_has_no_calls_and_no_records_and_an_unknown_one_is_not_found() -> None:
    async with talking() as talk:
        assert (await talk.get("/calls")).content == b""
        assert (await talk.http.get("/sessions/unknown/calls")).status_code == 404
        found = (await talk.get()).json()
    empty: dict[str, list[Any]] = {"nodes": [], "leaves": []}
    assert found["records"] == []
    assert found["metadata"] == {"accumulated_token_ids": [], "max_trim_tokens": 0, "tree": empty}


async def test_each_record_has_the_whole_conversation_and_all_ids() -> None:
    async with talking() as talk:
        messages = await conversation(talk)
        found = (await talk.get()).json()
    assert [one["request"]["messages"] for one in found["records"]] == [
        [
            {k: v for k, v in message.items() if k in ("role", "content")}
            for message in messages[: 2 * turn + 1]
        ]
        for turn in range(TURNS)
    ]
    asked = [prompt for kind, prompt, _ in talk.engine.asked if kind == "ids"]
    assert [one["request"]["input_ids"] for one in found["records"][1:]] == asked
    ids = found["records"][-1]["request"]["input_ids"]
    assert found["metadata"]["accumulated_token_ids"][: len(ids)] == ids
    assert (found["metadata"]["max_trim_tokens"], found["metadata"]["tito_session_mismatch"]) == (0, [])


async def test_a_branch_has_the_records_of_its_own_path() -> None:
    async with talking() as talk:
        await conversation(talk)
        other = [*HELLO, {"role": "assistant", "content": "no"}, user("Again.")]
        await talk.chat(other)
        found = (await talk.get()).json()
    assert [one["request"]["messages"] for one in found["records"]] == [other]
    assert len(found["metadata"]["tree"]["leaves"]) == 2


async def test_calls_are_those_of_all_branches_and_make_the_same_rows(tmp_path: Path) -> None:
    async with talking() as talk:
        messages = await conversation(talk)
        await talk.chat([*messages[:-1], user("Or else?")])
        await talk.chat([user("Another.")])
        answered = await talk.get("/calls")
        rows = (await talk.get("/samples", headers={"accept": "application/json"})).json()
        by_key = await talk.http.get("/session/calls", headers={"x-tito-session": talk.name})
    assert answered.headers["content-type"] == "application/x-ndjson"
    assert by_key.content == answered.content
    assert len(answered.content.splitlines()) == TURNS + 2
    file = tmp_path / "calls.jsonl"
    file.write_bytes(answered.content)
    (stored,) = conversations(file)
    assert isinstance(stored, StoredConversation)
    assert stored.name == talk.name
    assert [(row.ids.tolist(), sum(row.loss_mask)) for row in make_rows(stored.forest).rows] == [
        (one["tokens"], sum(one["loss_mask"])) for one in rows["samples"]
    ]
    assert len(rows["samples"]) == 3


async def test_the_text_of_each_message_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    def counted(value: object) -> bytes:
        written.extend([value] if isinstance(value, dict) and value.keys() == {"role", "content"} else [])
        return dumps(value)

    async with talking() as talk:
        messages = await conversation(talk)
        async with talk.gateway.sessions.using(talk.name) as session:
            monkeypatch.setattr(records, "dumps", counted)
            parts = list(session_records(session))
    assert len(written) == len(messages) + 1
    assert len(parts) == TURNS + 2
    assert len(orjson.loads(b"".join(parts))["records"]) == TURNS


async def test_turns_go_on_while_records_are_read() -> None:
    async with talking() as talk:
        messages = await conversation(talk)
        async with talk.gateway.sessions.using(talk.name) as session:
            parts = session_records(session)
            begun = [next(parts), next(parts)]
        with anyio.fail_after(5):
            await talk.chat([*messages, {"role": "user", "content": "More."}])
    found = orjson.loads(b"".join((*begun, *parts)))
    assert (len(found["records"]), len(found["metadata"]["tree"]["nodes"])) == (TURNS, TURNS)


async def test_others_are_answered_between_two_records(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, others = list[int](), [0]

    def noting(session: Session) -> Iterator[bytes]:
        for part in session_records(session):
            seen.append(others[0])
            yield part

    async def work() -> None:
        while True:
            others[0] += 1
            await anyio.lowlevel.checkpoint()

    monkeypatch.setattr("tito_io.serve.app.session_records", noting)
    async with talking() as talk, anyio.create_task_group() as group:
        await conversation(talk)
        group.start_soon(work)
        await talk.get()
        group.cancel_scope.cancel()
    assert len(seen) == TURNS + 2
    assert seen[-1] - seen[0] >= TURNS


async def test_a_record_says_all_that_is_known_of_its_turn() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with talking(Reporting(), clock=lambda: 1_000.25) as talk:
        said = await talk.said([user("a")], tools=tools, seed=7)
        last = await talk.chat([user("a"), said, user("b")], tools=tools, model="mine", top_p=0.5)
        found = (await talk.get()).json()
        first, second = await talk.commits()
    ids = second.step.ids.tolist()
    assert found["session_id"] == talk.name
    assert found["metadata"] == {
        "accumulated_token_ids": ids,
        "max_trim_tokens": 0,
        "tito_session_mismatch": [],
        "tree": {
            "nodes": [
                {
                    "id": one.name,
                    "parent": parent,
                    "seq": place,
                    "truncated": False,
                    "committed_at": one.at,
                    "completion_span": [len(one.step.prompt_ids), len(one.step.ids)],
                    "num_tokens": len(one.step.ids),
                    "response_id": one.name,
                }
                for place, (one, parent) in enumerate(((first, None), (second, first.name)))
            ],
            "leaves": [{"node_id": second.name, "path_node_ids": [first.name, second.name]}],
        },
    }
    one, other = found["records"]
    assert one["request"] == {
        "seed": 7,
        "tools": tools,
        "messages": [user("a")],
        "input_ids": list(first.step.prompt_ids),
    }
    assert one["response"]["model"] == "default"
    meta_info = other["response"]["choices"][0]["meta_info"]
    answer = {**last["choices"][0]["message"], "content": "ok"}
    answer["tool_calls"] = [{**answer["tool_calls"][0], "index": 0}]
    assert other == {
        "timestamp": second.at,
        "request_timestamp": 1_000.25,
        "method": "POST",
        "path": "/v1/chat/completions",
        "request": {
            "model": "mine",
            "top_p": 0.5,
            "tools": tools,
            "messages": [user("a"), {"role": "assistant", "content": "ok"}, user("b")],
            "input_ids": ids[:-3],
        },
        "response": {
            **last,
            "created": int(second.at),
            "choices": [
                {
                    **last["choices"][0],
                    "message": answer,
                    "meta_info": meta_info,
                    "logprobs": {
                        "content": [
                            {
                                "token": f"token_id:{index}",
                                "logprob": -0.5,
                                "bytes": None,
                                "top_logprobs": [],
                            }
                            for index in ids[-3:]
                        ],
                        "refusal": None,
                    },
                }
            ],
        },
        "status_code": 200,
    }
    assert meta_info == {
        "id": second.name,
        "finish_reason": {"type": "stop", "matched": 2},
        "prompt_tokens": len(ids) - 3,
        "completion_tokens": 3,
        "cached_tokens": 4,
        "output_token_logprobs": [[-0.5, index, None] for index in ids[-3:]],
        "weight_version": "step 4",
        "routed_experts": b64encode(bytes(range(len(ids) - 1))).decode(),
    }


@pytest.mark.parametrize(
    ("path", "body", "recorded"),
    [
        ("/v1/messages", {"messages": HELLO, "max_tokens": 9}, "/v1/messages"),
        ("/v1/responses", {"input": HELLO}, "/v1/responses"),
        (
            "/v1/models/m:generateContent",
            {"contents": [{"parts": [{"text": "hi"}]}]},
            "/v1beta/models",
        ),
    ],
)
async def test_a_record_names_the_path_of_its_api(path: str, body: dict[str, Any], recorded: str) -> None:
    async with talking() as talk:
        answered = await talk.post({"model": "m", **body}, path)
        assert answered.status_code == 200, answered.text
        (record,) = (await talk.get()).json()["records"]
    assert (record["path"], record["response"]["object"]) == (recorded, "chat.completion")


async def test_a_turn_of_which_no_rendering_is_known_is_shown() -> None:
    async with talking() as talk:
        await talk.chat(HELLO)
        async with talk.gateway.sessions.using(talk.name) as session:
            (commit,) = session.commits.values()
            call = attrs.evolve(commit.call, step=attrs.evolve(commit.step, key=None))
            session.commits[commit.name] = attrs.evolve(commit, call=call)
        (record,) = (await talk.get()).json()["records"]
        assert set(record["request"]) == {"messages", "input_ids"}
        page = await talk.get("/view")
    assert page.status_code == 200
    assert "sent by messages" in page.text
