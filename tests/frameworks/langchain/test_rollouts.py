"""What only LangChain has: its events, bindings, checkpoints, and messages in other forms."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, message_chunk_to_message
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, ValidationError

from tests.frameworks.langchain.sdk import SDK, TOOLS, agent
from tests.frameworks.laws.sdk import CALLING, HELLO, QUESTION, TEXTS
from tests.frameworks.scripted import Watched, assert_by_ids, call, sampled, scripted, thought, trained, went
from tito_core import InputError
from tito_io.client import TokenClient
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Sampling
from tito_io.integrations.langchain import TokenChatModel

ASKED, MORE = HumanMessage(QUESTION), HumanMessage("And in Rome?")


def chat(engine: Any, **settings: Any) -> TokenChatModel:
    return TokenChatModel(client=TokenClient(engine), on_refusal="raise", settings=settings)


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
def test_the_newest_protocol_of_events_goes_by_ids() -> None:
    """Messages have other ids in it, and their content is a list."""
    model = chat(scripted(*TEXTS))

    async def by_events() -> list[Any]:
        run = await agent(model).astream_events({"messages": [ASKED]}, version="v3")
        async for _ in run:
            pass
        found: list[Any] = (await run.output())["messages"]
        return found

    assert asyncio.run(by_events())[-1].text.strip() == "It is sunny in Rome, however."
    assert len(model.calls.calls) == len(TEXTS)
    assert_by_ids(model.calls)


def test_reasoning_is_where_langchain_keeps_it() -> None:
    turns = asyncio.run(SDK().streamed(chat(scripted(*TEXTS)))).turns
    assert turns[1][1] == {"reasoning_content": "It is unclear."}


def test_arguments_of_a_call_override_settings() -> None:
    engine = scripted(HELLO)
    given = {"temperature": 0.5, "max_tokens": 150, "seed": 7, "stop": None}
    model = chat(engine, temperature=1.0, seed=1, stop=["no"]).bind(**given)
    asyncio.run(model.ainvoke([ASKED], stop=["END", "FIN"]))
    assert engine.samplings() == [Sampling(max_tokens=150, temperature=0.5, seed=7, stop=("END", "FIN"))]


class Answer(BaseModel):
    """An answer."""

    city: str


def test_a_schema_is_a_constraint_and_a_structured_answer_a_forced_call() -> None:
    engine = scripted(thought("Hm.") + "{}", call("Answer", city="Rome"))
    form = {"type": "json_object"}
    asyncio.run(SDK().whole(chat(engine), parallel_tool_calls=False, response_format=form))
    found = asyncio.run(chat(engine).with_structured_output(Answer).ainvoke([ASKED]))
    assert found == Answer(city="Rome")
    assert [sampling.constraint for *_, sampling in engine.asked] == [
        Constraint(schema={"type": "object"}, one_call=True),
        Constraint(must_call=()),
    ]


@pytest.mark.parametrize("choice", ["hour", {"type": "function", "function": {"name": "hour"}}])
def test_a_tool_can_be_chosen_by_name(choice: Any) -> None:
    engine = scripted(call("hour", city="Rome", exact=True))
    made = asyncio.run(chat(engine).bind_tools(TOOLS, tool_choice=choice).ainvoke([ASKED]))
    assert [one["name"] for one in made.tool_calls] == ["hour"]
    assert [sampling.constraint for *_, sampling in engine.asked] == [Constraint(must_call=("hour",))]


def test_a_call_that_is_not_awaited_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="use ainvoke"):
        chat(scripted("Hello.")).invoke([ASKED])


def test_a_checkpoint_may_be_continued_twice() -> None:
    model = chat(scripted(*TEXTS, CALLING, "In Rome.", "In Lima."))
    stored = agent(model, checkpointer=InMemorySaver())

    async def branch() -> None:
        thread = {"configurable": {"thread_id": "a"}}
        await stored.ainvoke({"messages": [ASKED]}, thread)
        here = (await stored.aget_state(thread)).config
        await stored.ainvoke({"messages": [MORE]}, here)
        await stored.ainvoke({"messages": [HumanMessage("And where then?")]}, here)

    asyncio.run(branch())
    assert went(model.calls) == {"MITO": 1, "TITO": 8}
    assert trained(model.calls)[1] == sampled(model.calls)[8]


@pytest.mark.parametrize("streams", [False, True])
def test_malformed_arguments_are_an_invalid_call_and_go_back(streams: bool, monkeypatch: Any) -> None:
    engine = scripted(HELLO, CALLING, "And so on.")
    model = chat(engine)
    sample, bound = engine.sample, model.bind_tools(TOOLS)

    async def malformed(request: Any) -> Any:
        """Answer as an engine does whose own parser takes a call that is cut for one."""
        reply = await sample(request)
        for one in (reply.message or {}).get("tool_calls", ()):
            one["function"]["arguments"] = '{"city": "Rome'
        return reply

    monkeypatch.setattr(Watched, "sample", lambda _, request: malformed(request))

    async def talk() -> Any:
        messages: list[Any] = [ASKED, await bound.ainvoke([ASKED]), MORE]
        if streams:
            chunks: list[Any] = [chunk async for chunk in bound.astream(messages)]
            turn = message_chunk_to_message(chunks[0] + chunks[1:])
        else:
            turn = await bound.ainvoke(messages)
        await bound.ainvoke([*messages, turn, ASKED])
        return turn

    turn = asyncio.run(talk())
    assert turn.tool_calls == []
    assert [one["name"] for one in turn.invalid_tool_calls] == ["hour"]
    assert_by_ids(model.calls)


def test_a_block_that_cannot_be_sent_is_refused_by_name() -> None:
    image = AIMessage([{"type": "image", "url": "https://example.org/a.png"}])
    with pytest.raises(InputError, match="a block of type 'image'"):
        asyncio.run(chat(scripted("Hello.")).ainvoke([ASKED, image, MORE]))


def test_turns_of_others_are_sent_as_messages() -> None:
    engine = scripted(HELLO)
    given = {"name": "hour", "args": {"city": "Rome", "exact": True}, "id": "a"}
    other = AIMessage("See.", tool_calls=[given], additional_kwargs={"reasoning_content": "Hm."})
    model = TokenChatModel(client=TokenClient(engine))
    asyncio.run(model.ainvoke([ASKED, other, MORE]))
    function = {"name": "hour", "arguments": '{"city": "Rome", "exact": true}'}
    calls = [{"id": "a", "type": "function", "function": function}]
    said = {"role": "assistant", "content": "See.", "reasoning": "Hm.", "tool_calls": calls}
    assert engine.asked[0][1][1] == said


def test_an_argument_that_is_no_field_is_named() -> None:
    client = TokenClient(scripted(HELLO))
    with pytest.raises(
        ValidationError, match="temperature: TokenChatModel has no such field; give arguments"
    ):
        TokenChatModel(client=client, temperature=0.5)
    model = TokenChatModel(client=client, settings={"temperature": 0.5}, name="helper", tags=["a"])
    assert asyncio.run(model.ainvoke([ASKED])).content.endswith("Hello.")
