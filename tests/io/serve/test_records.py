"""Records of a session: each with the whole conversation, written at the cost of what is new in it."""

from __future__ import annotations

from typing import Any

import anyio
import orjson
import pytest

from tests.io.serve.gateway import HELLO, Scripted, chat, client, opened, scripted_gateway
from tito_io.dialects.wire import dumps
from tito_io.serve import records
from tito_io.serve.records import session_records

pytestmark = pytest.mark.anyio
TURNS = 6


async def conversation(http: Any, name: str) -> list[Any]:
    """Take some turns; return the messages of the last prompt."""
    messages: list[Any] = list(HELLO)
    for turn in range(TURNS):
        answered = await chat(http, name, messages)
        if turn < TURNS - 1:
            said = {"role": "user", "content": f"And {turn}?"}
            messages = [*messages, answered["choices"][0]["message"], said]
    return messages


async def test_each_record_has_the_whole_conversation_and_all_ids() -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http)
        messages = await conversation(http, name)
        found = (await http.get(f"/sessions/{name}")).json()
    assert [one["request"]["messages"] for one in found["records"]] == [
        [
            {k: v for k, v in message.items() if k in ("role", "content")}
            for message in messages[: 2 * turn + 1]
        ]
        for turn in range(TURNS)
    ]
    asked = [prompt for kind, prompt, _ in engine.asked if kind == "ids"]
    assert [one["request"]["input_ids"] for one in found["records"][1:]] == asked
    ids = found["records"][-1]["request"]["input_ids"]
    assert found["metadata"]["accumulated_token_ids"][: len(ids)] == ids
    assert (found["metadata"]["max_trim_tokens"], found["metadata"]["tito_session_mismatch"]) == (0, [])


async def test_a_branch_has_the_records_of_its_own_path() -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await opened(http)
        await conversation(http, name)
        other = [*HELLO, {"role": "assistant", "content": "no"}, {"role": "user", "content": "Again."}]
        await chat(http, name, other)
        found = (await http.get(f"/sessions/{name}")).json()
    assert [one["request"]["messages"] for one in found["records"]] == [other]
    assert len(found["metadata"]["tree"]["leaves"]) == 2


async def test_an_empty_session_has_no_records() -> None:
    async with client(scripted_gateway(Scripted())) as http:
        found = (await http.get(f"/sessions/{await opened(http)}")).json()
    empty: dict[str, list[Any]] = {"nodes": [], "leaves": []}
    assert found["records"] == []
    assert found["metadata"] == {"accumulated_token_ids": [], "max_trim_tokens": 0, "tree": empty}


async def test_the_text_of_each_message_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    def counted(value: object) -> bytes:
        written.extend([value] if isinstance(value, dict) and value.keys() == {"role", "content"} else [])
        return dumps(value)

    gateway = scripted_gateway(Scripted())
    async with client(gateway) as http:
        name = await opened(http)
        messages = await conversation(http, name)
        async with gateway.sessions.using(name) as session:
            monkeypatch.setattr(records, "dumps", counted)
            parts = list(session_records(session))
    assert len(written) == len(messages) + 1
    assert len(parts) == TURNS + 2
    assert len(orjson.loads(b"".join(parts))["records"]) == TURNS


async def test_turns_go_on_while_records_are_read() -> None:
    gateway = scripted_gateway(Scripted())
    async with client(gateway) as http:
        name = await opened(http)
        messages = await conversation(http, name)
        async with gateway.sessions.using(name) as session:
            parts = session_records(session)
            begun = [next(parts), next(parts)]
        with anyio.fail_after(5):
            await chat(http, name, [*messages, {"role": "user", "content": "More."}])
    found = orjson.loads(b"".join((*begun, *parts)))
    assert (len(found["records"]), len(found["metadata"]["tree"]["nodes"])) == (TURNS, TURNS)
