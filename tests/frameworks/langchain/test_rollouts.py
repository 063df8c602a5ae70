"""Agents of LangChain, which are graphs of LangGraph, run without a server; later turns go by ids."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import attrs
import pytest
from langchain.agents import create_agent
from langchain_core import exceptions
from langchain_core.messages import AIMessage, HumanMessage, message_chunk_to_message
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, ValidationError

from tests.frameworks.scripted import (
    Watched,
    assert_aborts,
    assert_by_ids,
    assert_drifted,
    call,
    sampled,
    scripted,
    thought,
    trained,
    went,
)
from tito_core import InputError, OddStop, Policy
from tito_io.client import TokenClient
from tito_io.embedded import vocabulary
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import OverlongError, RequestError, Sampling, ServerError, UnreachableError
from tito_io.engines.registry import embedded
from tito_io.integrations import framework, langchain
from tito_io.integrations.framework import FrameworkError
from tito_io.integrations.langchain import TokenChatModel
from tito_io.integrations.next_prompts import RefusedError

HELLO = thought("A greeting.") + "Hello."
QUESTION = {"role": "user", "content": "How is the weather in Köln?"}
MORE = {"role": "user", "content": "And in Rome?"}
TEXTS = (
    thought("Both at once, then.")
    + call("weather", city="Köln")
    + "\n"
    + call("hour", city="Köln", exact=True),
    thought("It is unclear.") + "Let me look again.\n" + call("weather", city="Köln/Bonn", days=2),
    call("hour", city='the "old" town', exact=False),
    "One more.\n" + call("weather", city="Rome", days=3),
    thought("That is strange.") + call("hour", city="Rome", exact=True),
    thought("Enough of <that>.") + "It is sunny in Rome, however.",
)
"""Six turns: parallel calls, text before a call, with reasoning and without."""


@tool(parse_docstring=True)
def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: Where.
        days: For how many days.
    """
    return f"It is sunny in {city} for {days} days."


@tool
def hour(city: str, exact: bool) -> str:
    """Tell the time."""
    return f"noon in {city}" if exact else "about noon"


def chat(engine: Any, on_refusal: Any = "raise", **settings: Any) -> TokenChatModel:
    return TokenChatModel(client=TokenClient(engine), on_refusal=on_refusal, settings=settings)


def agent(model: TokenChatModel, **options: Any) -> Any:
    return create_agent(model, [weather, hour], system_prompt="Help, and be brief.", name="helper", **options)


async def whole(model: TokenChatModel, *messages: Any) -> list[Any]:
    found: list[Any] = (await agent(model).ainvoke({"messages": [*messages]}))["messages"]
    return found


async def streamed(model: TokenChatModel, *messages: Any) -> list[Any]:
    """Run while a listener wants every token: the loop is the same, and each request is streamed."""
    found: list[Any] = []
    modes = ["messages", "values"]
    async for kind, data in agent(model).astream({"messages": [*messages]}, stream_mode=modes):
        found = data["messages"] if kind == "values" else found
    return found


async def by_events(model: TokenChatModel, *messages: Any) -> list[Any]:
    """Run by the newest protocol, in which messages have other ids and their content is a list."""
    run = await agent(model).astream_events({"messages": [*messages]}, version="v3")
    async for _ in run:
        pass
    found: list[Any] = (await run.output())["messages"]
    return found


RUNS = pytest.mark.parametrize("run", [whole, streamed])
pytestmark = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")


@pytest.mark.parametrize("run", [whole, streamed, by_events])
def test_an_agent_with_two_tools_runs_to_its_end_by_ids(run: Any) -> None:
    engine = scripted(*TEXTS)
    model = chat(engine)
    messages = asyncio.run(run(model, QUESTION))
    assert messages[-1].text.strip() == "It is sunny in Rome, however."
    assert [how for how, *_ in engine.asked] == ["messages", *["ids"] * 5]
    assert_by_ids(model.calls)
    assert_drifted(model.calls)


def test_tools_and_their_results_reach_the_template() -> None:
    engine = scripted(*TEXTS)
    model = chat(engine)
    asyncio.run(whole(model, QUESTION))
    _, messages, rendering, _ = engine.asked[0]
    assert messages == [{"role": "system", "content": "Help, and be brief."}, QUESTION]
    assert rendering is not None
    assert [one["function"]["name"] for one in rendering.tools] == ["weather", "hour"]
    schema = rendering.tools[0]["function"]["parameters"]
    assert schema["properties"]["city"]["description"] == "Where."
    last = model.calls.calls[1].step.prompt
    assert [(one["role"], one["content"]) for one in last[3:]] == [
        ("tool", "It is sunny in Köln for 1 days."),
        ("tool", "noon in Köln"),
    ]
    assert [one["tool_call_id"] for one in last[3:]] == [one["id"] for one in last[2]["tool_calls"]]


def called(message: AIMessage) -> list[Any]:
    """Return the calls of a message without their ids, which the engine draws."""
    return [(one["name"], one["args"]) for one in message.tool_calls]


def test_streaming_gives_the_same_turns() -> None:
    models = [chat(scripted(*TEXTS)) for _ in range(2)]
    results = [
        asyncio.run(run(model, QUESTION)) for run, model in zip((whole, streamed), models, strict=True)
    ]
    whole_ids, streamed_ids = ([one.ids for one in model.calls.calls] for model in models)
    assert whole_ids == streamed_ids
    said, others = (
        [
            (one.content, called(one), one.additional_kwargs, one.usage_metadata, one.response_metadata)
            for one in messages[2:]  # the first turn is a message of the server's, which differs in streams
            if isinstance(one, AIMessage)
        ]
        for messages in results
    )
    assert said == others
    assert said[0][2] == {"reasoning_content": "It is unclear."}


def test_text_is_streamed_as_it_comes() -> None:
    text = "It is sunny in Rome, however, and it stays so for days."
    client = TokenClient(scripted(HELLO, text))
    model = TokenChatModel(client=client, decode=vocabulary().decode)

    async def pieces() -> list[str]:
        messages = [QUESTION, await model.ainvoke([QUESTION]), MORE]
        return [chunk.text async for chunk in model.astream(messages) if chunk.text]

    found = asyncio.run(pieces())
    assert "".join(found) == text
    assert len(found) > 5
    assert_by_ids(model.calls)


SETTINGS: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "max_tokens": 150,
    "frequency_penalty": 0.25,
    "presence_penalty": 0.125,
    "seed": 7,
    "stop": ["END", "FIN"],
    "reasoning_effort": "low",
    "parallel_tool_calls": True,
}
EXPECTED = Sampling(
    max_tokens=150,
    temperature=0.5,
    seed=7,
    stop=("END", "FIN"),
    extra={"top_p": 0.9, "top_k": 5, "frequency_penalty": 0.25, "presence_penalty": 0.125},
)


@RUNS
def test_settings_reach_the_engine(run: Any) -> None:
    engine = scripted(TEXTS[2], "Hello.")
    asyncio.run(run(chat(engine, **SETTINGS), QUESTION))
    assert engine.samplings() == [EXPECTED, EXPECTED]
    assert [rendering.template_args for *_, rendering, _ in engine.asked if rendering] == [
        {"reasoning_effort": "low"}
    ] * 2


def test_arguments_of_a_call_override_settings() -> None:
    engine = scripted(HELLO)
    model = chat(engine, temperature=1.0, seed=1, stop=["no"]).bind(**{**SETTINGS, "stop": None})
    asyncio.run(model.ainvoke([QUESTION], stop=["END", "FIN"]))
    assert engine.samplings() == [EXPECTED]


@RUNS
def test_constraints_reach_the_engine(run: Any) -> None:
    engine = scripted(thought("Hm.") + "{}", thought("So.") + '{"a": 1}')
    model = chat(engine, parallel_tool_calls=False, response_format={"type": "json_object"})
    answered = asyncio.run(run(model, QUESTION))
    asyncio.run(run(model, *answered, MORE))
    expected = Constraint(schema={"type": "object"}, one_call=True)
    assert [sampling.constraint for *_, sampling in engine.asked] == [expected, expected]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("tool_choice", {"tool_choice": "any"}),
    ("response_format", {"response_format": {"type": "grammar"}}),
    ("top_logprobs", {"top_logprobs": 3}),
    ("verbosity", {"verbosity": "low"}),
    ("maxtokens", {"maxtokens": 9}),
    ("timeout", {"timeout": 9}),
    ("extra_body", {"extra_body": {"top_k": 1}}),
    ("n is 2", {"n": 2}),
    ("stop", {"stop": [3]}),
    ("seed", {"seed": "x"}),
]


@RUNS
@pytest.mark.parametrize(("name", "settings"), BAD, ids=[name for name, _ in BAD])
def test_settings_that_cannot_be_honoured_are_refused_by_name(
    run: Any, name: str, settings: dict[str, Any]
) -> None:
    engine = scripted("Hello.")
    with pytest.raises(InputError, match=name):
        asyncio.run(run(chat(engine, **settings), QUESTION))
    assert engine.asked == []


class Answer(BaseModel):
    """An answer."""

    city: str


def test_a_structured_answer_is_a_forced_call() -> None:
    engine = scripted(call("Answer", city="Rome"))
    found = asyncio.run(chat(engine).with_structured_output(Answer).ainvoke([QUESTION]))
    assert found == Answer(city="Rome")
    assert [sampling.constraint for *_, sampling in engine.asked] == [Constraint(must_call=())]


@pytest.mark.parametrize("choice", ["hour", {"type": "function", "function": {"name": "hour"}}])
def test_a_tool_can_be_chosen_by_name(choice: Any) -> None:
    engine = scripted(call("hour", city="Rome", exact=True))
    made = asyncio.run(chat(engine).bind_tools([hour, weather], tool_choice=choice).ainvoke([QUESTION]))
    assert [one["name"] for one in made.tool_calls] == ["hour"]
    assert [sampling.constraint for *_, sampling in engine.asked] == [Constraint(must_call=("hour",))]


def test_a_call_that_is_not_awaited_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="use ainvoke"):
        chat(scripted("Hello.")).invoke([QUESTION])


@RUNS
def test_usage_is_the_engine_s(run: Any) -> None:
    engine = scripted(*TEXTS)
    messages = asyncio.run(run(chat(engine), QUESTION))
    found = [one.usage_metadata for one in messages if isinstance(one, AIMessage)]
    assert found == [
        {
            "input_tokens": one.usage.prompt_tokens,
            "output_tokens": one.usage.completion_tokens,
            "total_tokens": one.usage.prompt_tokens + one.usage.completion_tokens,
            "input_token_details": {"cache_read": one.usage.cached_tokens},
        }
        for one in engine.replies
    ]


KINDS = [
    (ServerError("out of memory"), exceptions.ModelAPIError),
    (UnreachableError("no answer"), exceptions.ModelConnectionError),
    (RequestError("not so"), exceptions.ModelInvalidRequestError),
    (OverlongError("too long"), exceptions.ContextOverflowError),
]


@RUNS
@pytest.mark.parametrize(("error", "kind"), KINDS, ids=[kind.__name__ for _, kind in KINDS])
def test_an_engine_s_error_is_one_that_the_sdk_knows(run: Any, error: Exception, kind: Any) -> None:
    model = chat(attrs.evolve(scripted("Hello."), error=error))
    with pytest.raises(kind, match=str(error)) as raised:
        asyncio.run(run(model, QUESTION))
    assert raised.value.__cause__ is error
    assert model.calls.calls == []


@RUNS
def test_a_cancelled_run_aborts_the_turn(run: Any) -> None:
    engine = attrs.evolve(scripted(), hangs=True)
    model = chat(engine)
    assert_aborts(engine, run(model, QUESTION))
    assert model.calls.calls == []


def test_a_stream_that_is_left_aborts_the_turn() -> None:
    engine = scripted(HELLO, "It is sunny in Rome, however.")
    model = TokenChatModel(client=TokenClient(engine), decode=vocabulary().decode)

    async def leave() -> None:
        answer = await model.ainvoke([QUESTION])
        engine.stalls = True
        async for chunk in model.astream([QUESTION, answer, MORE]):
            if chunk.text:
                break
        await engine.cancelled.wait()

    asyncio.run(asyncio.wait_for(leave(), 20))
    assert len(model.calls.calls) == 1


def branching() -> Watched:
    return scripted(*TEXTS, TEXTS[2], "In Rome.", "In Lima.")


def test_a_branch_gives_two_rows_and_trains_the_common_turns_once() -> None:
    model = chat(branching())

    async def branch() -> None:
        history = await whole(model, QUESTION)
        await whole(model, *history, MORE)
        await streamed(model, *history, HumanMessage("And where then?"))

    asyncio.run(branch())
    assert_two_rows(model)


def test_a_checkpoint_may_be_continued_twice() -> None:
    model = chat(branching())
    stored = agent(model, checkpointer=InMemorySaver())

    async def branch() -> None:
        thread = {"configurable": {"thread_id": "a"}}
        await stored.ainvoke({"messages": [QUESTION]}, thread)
        here = (await stored.aget_state(thread)).config
        await stored.ainvoke({"messages": [MORE]}, here)
        await stored.ainvoke({"messages": [HumanMessage("And where then?")]}, here)

    asyncio.run(branch())
    assert_two_rows(model)


def assert_two_rows(model: TokenChatModel) -> None:
    rows = model.calls.rows(reward=1.0).rows
    assert len(rows) == 2
    assert went(model.calls) == {"MITO": 1, "TITO": 8}
    first, second = trained(model.calls)
    assert first == [index for ids in sampled(model.calls)[:8] for index in ids]
    assert second == sampled(model.calls)[8]
    assert [row.reward for row in rows] == [1.0, 1.0]


@pytest.mark.parametrize("on_refusal", ["rerender", "raise"])
def test_an_edited_turn_is_counted_and_may_raise(on_refusal: Any) -> None:
    model = chat(scripted(HELLO, HELLO), on_refusal)

    async def edit() -> None:
        answer = await model.ainvoke([QUESTION])
        await model.ainvoke([QUESTION, answer.model_copy(update={"content": "Bonjour."}), MORE])

    if on_refusal == "raise":
        with pytest.raises(RefusedError, match="NO_PREFIX"):
            asyncio.run(edit())
    else:
        asyncio.run(edit())
        assert trained(model.calls) == sampled(model.calls)
        assert "Bonjour." in str(model.calls.calls[1].step.prompt)
    assert dict(model.calls.refused) == {"NO_PREFIX": 1}


MALFORMED = '{"name": "hour", "arguments": {"city": "x", "exact": 1e400, "city": "y"}}'


@pytest.mark.parametrize("streams", [False, True])
def test_a_turn_goes_back_as_it_was_sampled_whatever_it_says(streams: bool) -> None:
    texts = (f"<tool_call>\n{MALFORMED}\n</tool_call>", "So <think>it was</think> spelled. ", "And so on.")
    model = chat(scripted(HELLO, *texts))
    bound: Any = model.bind_tools([hour])

    async def talk() -> list[Any]:
        messages: list[Any] = []
        for place in range(4):
            messages.append(HumanMessage(f"Question {place}?"))
            if streams:
                chunks = [chunk async for chunk in bound.astream(messages)]
                messages.append(message_chunk_to_message(chunks[0] + chunks[1:]))
            else:
                messages.append(await bound.ainvoke(messages))
        return messages

    said = [one.text for one in asyncio.run(talk())[1::2]]
    assert said == ["\n\nHello.", "", "So <think>it was</think> spelled. ", "And so on."]
    assert '"exact": 1e400, "city": "y"' in str(model.calls.calls[-1].step.prompt)
    assert_by_ids(model.calls)


@pytest.mark.parametrize("streams", [False, True])
def test_malformed_arguments_are_an_invalid_call_and_go_back(streams: bool, monkeypatch: Any) -> None:
    engine = scripted(HELLO, TEXTS[2], "And so on.")
    model = chat(engine)
    sample, bound = engine.sample, model.bind_tools([hour])

    async def malformed(request: Any) -> Any:
        """Answer as an engine does whose own parser takes a call that is cut for one."""
        reply = await sample(request)
        for one in (reply.message or {}).get("tool_calls", ()):
            one["function"]["arguments"] = '{"city": "Rome'
        return reply

    monkeypatch.setattr(Watched, "sample", lambda _, request: malformed(request))

    async def talk() -> Any:
        messages: list[Any] = [QUESTION, await bound.ainvoke([QUESTION]), MORE]
        if streams:
            chunks: list[Any] = [chunk async for chunk in bound.astream(messages)]
            turn = message_chunk_to_message(chunks[0] + chunks[1:])
        else:
            turn = await bound.ainvoke(messages)
        await bound.ainvoke([*messages, turn, QUESTION])
        return turn

    turn = asyncio.run(talk())
    assert turn.tool_calls == []
    assert [one["name"] for one in turn.invalid_tool_calls] == ["hour"]
    assert_by_ids(model.calls)


def test_a_block_that_cannot_be_sent_is_refused_by_name() -> None:
    image = AIMessage([{"type": "image", "url": "https://example.org/a.png"}])
    with pytest.raises(InputError, match="a block of type 'image'"):
        asyncio.run(chat(scripted("Hello.")).ainvoke([QUESTION, image, MORE]))


def test_turns_of_others_are_sent_as_messages() -> None:
    engine = scripted(HELLO)
    given = {"name": "hour", "args": {"city": "Rome", "exact": True}, "id": "a"}
    other = AIMessage("See.", tool_calls=[given], additional_kwargs={"reasoning_content": "Hm."})
    asyncio.run(chat(engine).ainvoke([QUESTION, other, MORE]))
    function = {"name": "hour", "arguments": '{"city": "Rome", "exact": true}'}
    calls = [{"id": "a", "type": "function", "function": function}]
    assert engine.asked[0][1][1] == {
        "role": "assistant",
        "content": "See.",
        "reasoning": "Hm.",
        "tool_calls": calls,
    }


@RUNS
def test_a_cut_turn_is_kept_and_continued(run: Any) -> None:
    model = chat(scripted(HELLO, "It is sunny in Rome, however.", "So it is."))

    async def talk() -> Any:
        history = await run(model, QUESTION)
        cut = await model.bind_tools([weather, hour]).ainvoke(
            [{"role": "system", "content": "Help, and be brief."}, *history, MORE], max_tokens=4
        )
        await run(model, *history, MORE, cut, QUESTION)
        return cut

    assert asyncio.run(talk()).response_metadata["finish_reason"] == "length"
    assert [one.finish_reason for one in model.calls.calls] == ["stop", "length", "stop"]
    assert_by_ids(model.calls)


@pytest.mark.parametrize("seed", range(8))
def test_turns_with_faults_go_by_ids(seed: int) -> None:
    client = TokenClient(embedded(seed=seed), Policy(odd_stop=OddStop.KEEP))
    model = TokenChatModel(client=client, on_refusal="raise", settings={"max_tokens": 400})

    async def talk() -> None:
        messages: list[Any] = []
        for place in range(6):
            run = (whole, streamed, by_events)[place % 3]
            question = {"role": "user", "content": f"Question {place}: how is the weather?"}
            messages = await run(model, *messages, question)

    asyncio.run(talk())
    assert_by_ids(model.calls)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "version", lambda _: "1.8.0")
    with pytest.raises(FrameworkError, match=r"langchain-core is 1\.8\.0: .* tested with >=1\.7,<1\.8"):
        importlib.reload(langchain)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"on_refusal\n.*'rerender' or 'raise'"):
        chat(scripted(), "end")


def test_an_argument_that_is_no_field_is_named() -> None:
    client = TokenClient(scripted(HELLO))
    with pytest.raises(
        ValidationError, match="temperature: TokenChatModel has no such field; give arguments"
    ):
        TokenChatModel(client=client, temperature=0.5)
    model = TokenChatModel(client=client, settings={"temperature": 0.5}, name="helper", tags=["a"])
    assert asyncio.run(model.ainvoke([QUESTION])).content.endswith("Hello.")
