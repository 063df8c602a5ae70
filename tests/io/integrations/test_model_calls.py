"""Model calls: requests of client APIs answered in this process, kept for rows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from tests.core.pictures import PAD
from tests.frameworks.scripted import (
    assert_by_ids,
    assert_drifted,
    call,
    sampled,
    scripted,
    thought,
    trained,
    went,
)
from tests.io.client.seeing import Seeing
from tests.io.engines.recorded_images import medium
from tito_core import InputError, OddStop, Policy
from tito_core.samples import Forest, RowPer, SampleOptions, make_rows
from tito_io.client import TokenClient
from tito_io.dialects import Anthropic, Chat, Responses
from tito_io.dialects.protocol import Dialect
from tito_io.embedded import vocabulary
from tito_io.embedded.vocabulary import END_OF_TURN
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import (
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    ServerError,
)
from tito_io.engines.registry import embedded
from tito_io.engines.replies.hermes import THINK
from tito_io.engines.wrapper import EngineWrapper
from tito_io.integrations.model_calls import ModelCalls, _CallEngine
from tito_io.integrations.next_prompts import RefusedError
from tito_io.samples.forms.tito import write_calls
from tito_io.samples.read import StoredConversation, conversations

FLAT = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
HELLO = {"role": "user", "content": "Hello."}
MORE = {"role": "user", "content": "Go on, however."}
TEXTS = (
    thought("However it may be.") + call("look"),
    "I was there.\n" + call("look", at="Köln"),
    thought("So.") + "That is all, however.",
)


async def chat(calls: ModelCalls, messages: list[Any], **fields: Any) -> Any:
    """Take a turn by the chat API, and return its message."""
    answer = await calls.answer(Chat(), {"messages": messages, "tools": [TOOL], **fields})
    return answer["choices"][0]["message"]


async def talk(calls: ModelCalls) -> list[Any]:
    """Talk until the script ends; return all messages."""
    messages: list[Any] = [HELLO]
    for _ in TEXTS:
        message = await chat(calls, messages)
        results = [
            {"role": "tool", "tool_call_id": one["id"], "content": "seen"}
            for one in message.get("tool_calls", ())
        ]
        messages = [*messages, message, *results]
    return messages


def test_a_conversation_goes_by_ids_and_trains_what_was_sampled() -> None:
    calls = ModelCalls(TokenClient(scripted(*TEXTS)), on_refusal="raise")
    anyio.run(talk, calls)
    assert_by_ids(calls)
    assert_drifted(calls)
    (row,) = calls.rows(reward=0.5).rows
    assert row.reward == 0.5
    assert [turn.finish_reason for turn in row.turns] == ["tool_calls", "tool_calls", "stop"]
    assert len(calls.rows(SampleOptions(rows=RowPer.CALL)).rows) == 3


def test_a_message_is_found_by_the_id_of_its_answer() -> None:
    calls = ModelCalls(TokenClient(scripted(TEXTS[2])))
    answer = anyio.run(calls.answer, Chat(), {"messages": [HELLO]})
    assert calls.message(answer["id"]) == calls.calls[0].step.completion[0]
    assert calls.message("another") is calls.message(None) is None


def test_calls_keep_their_own_rewards_unless_one_is_given() -> None:
    calls = ModelCalls(TokenClient(scripted(TEXTS[2])))
    anyio.run(chat, calls, [HELLO])
    calls.calls[0] = attrs.evolve(calls.calls[0], reward=0.25)
    assert [calls.rows().rows[0].reward, calls.rows(reward=1.0).rows[0].reward] == [0.25, 1.0]


@attrs.define
class OpenThought(EngineWrapper):
    """An engine whose generation prompt opens the reasoning."""

    async def render(self, messages: Any, rendering: Rendering, *, add_generation_prompt: bool) -> list[int]:
        ids = await super().render(messages, rendering, add_generation_prompt=add_generation_prompt)
        return [*ids, *(vocabulary().encode("<think>\n") if add_generation_prompt else ())]

    async def sample(self, request: SampleRequest) -> Reply:
        if request.messages is None:
            return await super().sample(request)
        ids = await self.render(request.messages, request.rendered_with, add_generation_prompt=True)
        return await super().sample(request.after(ids))


SPOKEN = "That is all, however, and it stays so for days."
STREAMED: list[tuple[Any, str]] = [
    (lambda engine: engine, thought("So it is, however.") + SPOKEN),
    (OpenThought, f"So it is, however.\n</think>\n\n{SPOKEN}"),
]


@pytest.mark.parametrize(("wrapped", "text"), STREAMED, ids=["closed", "open"])
@pytest.mark.parametrize("decode", [None, vocabulary().decode], ids=["whole", "as it comes"])
@pytest.mark.parametrize("dialect", [Chat(), Responses()], ids=lambda one: one.name)
def test_a_stream_adds_up_to_the_same_turn(dialect: Dialect, decode: Any, wrapped: Any, text: str) -> None:
    both = [ModelCalls(TokenClient(wrapped(scripted(text, text))), decode=decode) for _ in range(2)]

    async def talk(calls: ModelCalls) -> Any:
        messages = [HELLO, await chat(calls, [HELLO]), MORE]
        whole = {"messages": messages, "tools": [TOOL]}
        return whole if dialect.name == "chat" else {"input": items(messages), "tools": [FLAT]}

    async def whole() -> Any:
        return await both[0].answer(dialect, await talk(both[0]))

    async def streamed() -> list[Any]:
        body = {**await talk(both[1]), "stream": True}
        return [event async for event in both[1].events(dialect, body)]

    anyio.run(whole)
    pieces = spoken(anyio.run(streamed))
    assert "".join(pieces) == f"\n\n{SPOKEN}" or "".join(pieces) == SPOKEN
    assert (len(pieces) > 5) == (decode is not None)
    assert [one.ids for one in both[0].calls] == [one.ids for one in both[1].calls]
    assert_by_ids(both[1])


def items(messages: list[Any]) -> list[Any]:
    """Return messages as items of the responses API."""
    reasoning = {"type": "reasoning", "content": [{"type": "text", "text": messages[1]["reasoning"]}]}
    said = {"type": "message", "role": "assistant", "content": messages[1]["content"]}
    return [messages[0], reasoning, said, messages[2]]


def spoken(events: list[Any]) -> list[str]:
    """Return the pieces of content in a stream."""
    deltas = [one["choices"][0]["delta"] for one in events if one.get("choices")]
    more = [one["delta"] for one in events if one.get("type") == "response.output_text.delta"]
    return [*filter(None, (one.get("content") for one in deltas)), *more]


@pytest.mark.parametrize("streams", [False, True])
def test_a_call_that_fails_keeps_nothing(streams: bool) -> None:
    calls = ModelCalls(TokenClient(attrs.evolve(scripted(), error=ServerError("out of memory"))))

    async def ask() -> None:
        body = {"messages": [HELLO], "stream": streams}
        if streams:
            async for _ in calls.events(Chat(), body):
                pass
        else:
            await calls.answer(Chat(), body)

    with pytest.raises(ServerError, match="out of memory"):
        anyio.run(ask)
    assert calls.calls == []
    assert calls.rows().rows == ()


def test_a_stream_that_is_closed_early_is_cancelled_at_the_engine() -> None:
    engine = scripted("Hello.")
    calls = ModelCalls(TokenClient(engine))

    async def close() -> None:
        engine.hangs = True
        events = calls.events(Chat(), {"messages": [HELLO], "stream": True})

        async def ask() -> None:
            await anext(events)

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await engine.waiting.wait()
            group.cancel_scope.cancel()
        await engine.cancelled.wait()

    anyio.run(close)
    assert calls.calls == []


def test_a_stream_is_closed_when_its_turn_is_over_at_the_engine() -> None:
    """Whoever closed it may close the engine's connections next, or the event loop."""
    engine = scripted("Hello.", SPOKEN)
    calls = ModelCalls(TokenClient(engine), decode=vocabulary().decode)

    async def close() -> None:
        messages = [HELLO, await chat(calls, [HELLO]), MORE]
        engine.stalls = True
        events = calls.events(Chat(), {"messages": messages, "tools": [TOOL], "stream": True})
        await anext(events)
        await engine.waiting.wait()
        await events.aclose()
        assert engine.cancelled.is_set()

    anyio.run(close)
    assert len(calls.calls) == 1


@pytest.mark.parametrize("dialect", [Chat(), Responses(), Anthropic()], ids=lambda one: one.name)
def test_a_turn_is_kept_before_the_first_event_of_its_end(dialect: Dialect) -> None:
    """Clients stop reading where an event says that the answer is over, and go on with the next call."""
    bodies: dict[str, Any] = {
        "chat": {"messages": [HELLO]},
        "responses": {"input": "Hello."},
        "anthropic": {"model": "m", "max_tokens": 99, "messages": [HELLO]},
    }
    ends = ("response.output_item.done", "content_block_stop", "message_delta")
    calls = ModelCalls(TokenClient(scripted(SPOKEN)))

    async def read() -> None:
        events = calls.events(dialect, {**bodies[dialect.name], "stream": True})
        async for event in events:
            if event.get("type") in ends or (event.get("choices") or [{}])[0].get("finish_reason"):
                break
        await events.aclose()

    anyio.run(read)
    assert [vocabulary().decode(ids) for ids in sampled(calls)] == [SPOKEN + END_OF_TURN]


def test_a_stream_that_is_left_after_its_first_event_keeps_nothing() -> None:
    engine = scripted("Hello, and hello again, however.")
    calls = ModelCalls(TokenClient(engine))

    async def leave() -> dict[str, Any]:
        events = calls.events(Chat(), {"messages": [HELLO], "stream": True})
        first = await anext(events)
        await events.aclose()
        return first

    assert anyio.run(leave)["choices"][0]["delta"] == {"role": "assistant"}
    assert calls.calls == []


def test_a_branch_trains_the_common_turns_once() -> None:
    calls = ModelCalls(TokenClient(scripted(*TEXTS, "One, however.", "Two, however.")))

    async def branch() -> None:
        messages = await talk(calls)
        await chat(calls, [*messages, MORE])
        await chat(calls, [*messages, HELLO])

    anyio.run(branch)
    assert went(calls) == {"MITO": 1, "TITO": 4}
    first, second = trained(calls)
    assert first == [index for ids in sampled(calls)[:4] for index in ids]
    assert second == sampled(calls)[4]


@pytest.mark.whole
def test_runs_at_the_same_time_are_trees_of_their_own() -> None:
    calls = ModelCalls(TokenClient(embedded(seed=2), Policy(odd_stop=OddStop.KEEP)), on_refusal="raise")

    async def talk(number: int) -> None:
        messages: list[Any] = [{"role": "user", "content": f"I am {number}."}]
        for _ in range(4):
            messages += [await chat(calls, messages, max_tokens=40), MORE]

    async def talks() -> None:
        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(talk, number)

    anyio.run(talks)
    assert went(calls) == {"MITO": 4, "TITO": 12}
    assert not calls.refused
    forest = Forest.of(calls.calls)
    assert [len(tree) for tree in forest.trees] == [4, 4, 4, 4]
    assert sum(map(len, trained(calls))) == sum(map(len, sampled(calls)))


def test_calls_go_to_a_file_and_give_the_same_rows(tmp_path: Path) -> None:
    calls = ModelCalls(TokenClient(scripted(*TEXTS)))
    anyio.run(talk, calls)
    path = tmp_path / "calls.jsonl"
    with path.open("wb") as file:
        write_calls(file, "rollout", calls.calls)
    (stored,) = conversations(path)
    assert isinstance(stored, StoredConversation)
    (row,), (again,) = calls.rows().rows, make_rows(stored.forest).rows
    assert (row.ids, list(row.loss_mask), row.logprobs) == (again.ids, list(again.loss_mask), again.logprobs)


@pytest.mark.parametrize("on_refusal", ["rerender", "raise"])
def test_an_edited_history_is_counted_and_may_raise(
    on_refusal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = ModelCalls(TokenClient(scripted("Hello.", "Again.", "Once more.")), on_refusal=on_refusal)

    async def edit() -> None:
        await chat(calls, [HELLO])
        await chat(calls, [MORE])  # another conversation, which is nothing to count
        assert not calls.refused
        await chat(calls, [HELLO, {"role": "assistant", "content": "Bonjour."}, MORE])

    if on_refusal == "raise":
        with pytest.raises(RefusedError, match="NO_PREFIX"):
            anyio.run(edit)
    else:
        with caplog.at_level(logging.WARNING, "tito.integrations"):
            anyio.run(edit)
        assert "NO_PREFIX: none of 2 steps begins these 3 messages (rerender)" in caplog.text
    assert dict(calls.refused) == {"NO_PREFIX": 1}
    assert len(calls.calls) == {"rerender": 3, "raise": 2}[on_refusal]


def test_other_tools_are_counted() -> None:
    calls = ModelCalls(TokenClient(scripted("Hello.", "Again.")))

    async def change() -> None:
        message = await chat(calls, [HELLO])
        await calls.answer(Chat(), {"messages": [HELLO, message, MORE]})

    anyio.run(change)
    assert dict(calls.refused) == {"RENDERED_DIFFERENTLY": 1}


BAD: list[tuple[Dialect, dict[str, Any], str]] = [
    (Chat(), {"messages": [HELLO], "n": 2}, "n is 2: one turn is sampled a call"),
    (Chat(), {"messages": [HELLO], "maxtokens": 2}, "maxtokens: .* did you mean 'max_tokens'"),
    (Chat(), {"messages": [HELLO], "max_tokens": "2"}, "max_tokens is '2'"),
    (Chat(), {"messages": [HELLO], "continue_final_message": True}, "continue_final_message: a turn cannot"),
    (Responses(), {"input": "hi", "previous_response_id": "a"}, "previous_response_id: no response is"),
]


@pytest.mark.parametrize(("dialect", "body", "error"), BAD, ids=[error for *_, error in BAD])
def test_what_cannot_be_honoured_is_refused_by_name(dialect: Dialect, body: Any, error: str) -> None:
    engine = scripted("Hello.")
    calls = ModelCalls(TokenClient(engine))
    with pytest.raises(InputError, match=error):
        anyio.run(calls.answer, dialect, body)
    assert engine.asked == []


@pytest.mark.parametrize("dialect", [Chat(), Responses(), Anthropic()], ids=lambda one: one.name)
def test_every_dialect_is_answered_and_streamed(dialect: Dialect) -> None:
    bodies: dict[str, Any] = {
        "chat": {"messages": [HELLO]},
        "responses": {"input": "Hello."},
        "anthropic": {"model": "m", "max_tokens": 99, "messages": [HELLO]},
    }
    calls = ModelCalls(TokenClient(scripted("A word, however.", "A word, however.")))

    async def ask() -> tuple[Any, list[Any]]:
        body = bodies[dialect.name]
        whole = await calls.answer(dialect, body)
        return whole, [event async for event in calls.events(dialect, {**body, "stream": True})]

    whole, events = anyio.run(ask)
    assert "A word, however." in str(whole)
    assert len(events) > 2
    assert sampled(calls)[0] == sampled(calls)[1]


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(
        InputError, match="on_refusal is 'end': give 'rerender' or 'raise'; nothing here can end"
    ):
        ModelCalls(TokenClient(scripted()), on_refusal="end")  # type: ignore[arg-type]  # that is the point


def test_an_engine_in_the_place_of_the_client_is_named() -> None:
    with pytest.raises(InputError, match=r"client is .*: give a TokenClient, such as TokenClient\(engine\)"):
        ModelCalls(scripted())  # type: ignore[arg-type]  # that is the point


def test_what_cannot_decode_is_named() -> None:
    with pytest.raises(InputError, match=r"decode is 3: give a function, such as Family\.decode"):
        ModelCalls(TokenClient(scripted()), decode=3)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("refuses", [True, False])
def test_a_turn_with_images_is_read_as_one_by_ids(refuses: bool) -> None:
    """Its text is the model's own; by messages a server's parser would have taken reasoning out."""
    engine = _CallEngine(Seeing(refuses=refuses), lambda _: THINK)
    by_messages = engine.reading

    async def sample() -> None:
        await engine.from_ids_with_media([5, PAD], [medium("cat", 1, pad=PAD)], Sampling())

    if refuses:
        with pytest.raises(MediaUnsupportedError):
            anyio.run(sample)
        assert engine.reading == by_messages
    else:
        anyio.run(sample)
        assert engine.reading.thinking
