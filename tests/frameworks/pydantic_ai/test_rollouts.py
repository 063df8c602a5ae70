"""Agents of Pydantic AI run without a server, and every turn after the first goes by ids."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from typing import Any

import attrs
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, exceptions
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.openai import OpenAIChatModelSettings
from pydantic_ai.models.test import TestModel

from tests.frameworks.scripted import (
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
from tito_io.engines.protocol import OverlongError, Sampling, ServerError, UnreachableError
from tito_io.engines.registry import embedded
from tito_io.integrations import framework, pydantic_ai
from tito_io.integrations.framework import FrameworkError
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.pydantic_ai import OWN, SETTINGS, TokenModel

TestModel.__test__ = False  # it is a model for tests, and no test
HELLO = thought("A greeting.") + "Hello."
QUESTION = "How is the weather in Köln?"
TEXTS = (
    thought("Both at once, then.")
    + call("weather", city="Köln")
    + "\n"
    + call("hour", city="Köln", exact=True),
    thought("It is unclear.") + call("weather", city="Köln/Bonn", days=2),
    call("hour", city='the "old" town', exact=False),
    call("weather", city="Nowhere", days=3),
    thought("That is strange.") + call("hour", city="Rome", exact=True),
    thought("Enough of <that>.") + "It is sunny in Rome, however.",
)
"""Six turns: parallel calls, with reasoning and without, and a call that a tool wants to be repeated."""


def agent(model: Any, **options: Any) -> Agent[None, Any]:
    made: Agent[None, Any] = Agent(model, instructions="Help, and be brief.", **options)

    @made.tool_plain
    def weather(city: str, days: int = 1) -> str:
        """Tell the weather.

        Args:
            city: Where.
            days: For how many days.
        """
        if city == "Nowhere":
            raise ModelRetry("There is no such city.")
        return f"It is sunny in {city} for {days} days."

    @made.tool_plain
    def hour(city: str, exact: bool) -> str:
        """Tell the time."""
        return f"noon in {city}" if exact else "about noon"

    return made


async def whole(model: Any, prompt: str = QUESTION, history: Any = (), **settings: Any) -> Any:
    return await agent(model).run(prompt, message_history=list(history), model_settings=settings)


async def streamed(model: Any, prompt: str = QUESTION, history: Any = (), **settings: Any) -> Any:
    """Run with a handler of events: the loop is the same, and each request is streamed."""

    async def listen(_: Any, events: Any) -> None:
        async for _event in events:
            pass

    return await agent(model).run(
        prompt, message_history=list(history), model_settings=settings, event_stream_handler=listen
    )


RUNS = pytest.mark.parametrize("run", [whole, streamed])


@RUNS
def test_an_agent_with_two_tools_runs_to_its_end_by_ids(run: Any) -> None:
    engine = scripted(*TEXTS)
    model = TokenModel(TokenClient(engine), on_refusal="raise")
    assert asyncio.run(run(model)).output.strip() == "It is sunny in Rome, however."
    assert [how for how, *_ in engine.asked] == ["messages", *["ids"] * 5]
    assert_by_ids(model.calls)
    assert_drifted(model.calls)


def test_tools_and_their_results_reach_the_template() -> None:
    engine = scripted(*TEXTS)
    model = TokenModel(TokenClient(engine))
    asyncio.run(whole(model))
    _, messages, rendering, _ = engine.asked[0]
    assert messages == [
        {"role": "system", "content": "Help, and be brief."},
        {"role": "user", "content": QUESTION},
    ]
    assert rendering is not None
    assert [tool["function"]["name"] for tool in rendering.tools] == ["weather", "hour"]
    schema = rendering.tools[0]["function"]["parameters"]
    assert schema["properties"]["city"]["description"] == "Where."
    last = model.calls.calls[1].step.prompt
    assert [(one["role"], one["content"]) for one in last[3:]] == [
        ("tool", "It is sunny in Köln for 1 days."),
        ("tool", "noon in Köln"),
    ]
    assert [one["tool_call_id"] for one in last[3:]] == [one["id"] for one in last[2]["tool_calls"]]
    (retried,) = [one for one in model.calls.calls[4].step.prompt[-1:] if one["role"] == "tool"]
    assert "There is no such city." in retried["content"]


def test_streaming_gives_the_same_turns() -> None:
    models = [TokenModel(TokenClient(scripted(*TEXTS))) for _ in range(2)]
    results = [asyncio.run(run(model)) for run, model in zip((whole, streamed), models, strict=True)]
    whole_ids, streamed_ids = ([one.ids for one in model.calls.calls] for model in models)
    assert whole_ids == streamed_ids
    parts, others = (
        [one.parts for one in result.all_messages()[2:] if isinstance(one, ModelResponse)]
        for result in results
    )
    assert [[type(part) for part in one] for one in parts] == [[type(part) for part in one] for one in others]
    assert results[0].output == results[1].output


def test_text_is_streamed_as_it_comes() -> None:
    text = "It is sunny in Rome, however, and it stays so for days."
    model = TokenModel(TokenClient(scripted(HELLO, text)), decode=vocabulary().decode)

    async def pieces() -> list[str]:
        history = (await whole(model)).all_messages()
        async with agent(model).run_stream("And in Rome?", message_history=history) as result:
            return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]

    found = asyncio.run(pieces())
    assert "".join(found) == text
    assert len(found) > 5
    assert_by_ids(model.calls)


@RUNS
def test_settings_reach_the_engine(run: Any) -> None:
    engine = scripted(TEXTS[2], "Hello.")
    own: Any = {"seed": 1, "presence_penalty": 0.125}
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "max_tokens": 150,
        "frequency_penalty": 0.25,
        "openai_reasoning_effort": "low",
        "parallel_tool_calls": True,
        "seed": 7,
        "stop_sequences": ["END", "FIN"],
        "tool_choice": "auto",
        "extra_body": {"min_p": 0.1},
        "request_timeout": 60.0,
    }
    asyncio.run(run(TokenModel(TokenClient(engine), settings=own), **settings))
    extra = {
        "frequency_penalty": 0.25,
        "min_p": 0.1,
        "presence_penalty": 0.125,
        "top_k": 5,
        "top_p": 0.9,
    }
    expected = Sampling(max_tokens=150, temperature=0.5, seed=7, stop=("END", "FIN"), extra=extra)
    assert engine.samplings() == [expected, expected]
    assert [rendering.template_args for *_, rendering, _ in engine.asked if rendering] == [
        {"reasoning_effort": "low"}
    ] * 2


OTHERS = sorted(OpenAIChatModelSettings.__annotations__.keys() - SETTINGS.keys() - OWN)


def test_the_other_settings_are_many() -> None:
    assert {"max_retries", "thinking", "timeout", "extra_headers", "openai_logprobs", "cache"} <= {*OTHERS}


@RUNS
@pytest.mark.parametrize("name", OTHERS)
def test_settings_that_cannot_be_honoured_are_refused_by_name(run: Any, name: str) -> None:
    engine = scripted("Hello.")
    with pytest.raises(exceptions.UserError, match=f"the setting '{name}' cannot be honoured"):
        asyncio.run(run(TokenModel(TokenClient(engine)), **{name: None}))
    assert engine.asked == []


@RUNS
def test_a_limit_to_one_call_reaches_the_engine(run: Any) -> None:
    engine = scripted(TEXTS[2], "Hello.")
    asyncio.run(run(TokenModel(TokenClient(engine)), parallel_tool_calls=False))
    assert [sampling.constraint for *_, sampling in engine.asked] == [Constraint(one_call=True)] * 2


BAD: list[tuple[str, dict[str, Any]]] = [
    ("parallel_tool_calls", {"parallel_tool_calls": "no"}),
    ("tool_choice", {"tool_choice": "required"}),
    ("tool_choice", {"tool_choice": ["hour"]}),
    ("maxtokens", {"extra_body": {"maxtokens": 9}}),
    ("n is 2", {"extra_body": {"n": 2}}),
    ("stop", {"stop_sequences": [3]}),
    ("seed", {"seed": "x"}),
    ("max_tokens", {"max_tokens": 0}),
]


@RUNS
@pytest.mark.parametrize(("name", "settings"), BAD, ids=[name for name, _ in BAD])
def test_values_that_cannot_be_honoured_are_refused_by_name(
    run: Any, name: str, settings: dict[str, Any]
) -> None:
    engine = scripted("Hello.")
    with pytest.raises(exceptions.UserError, match=name):
        asyncio.run(run(TokenModel(TokenClient(engine)), **settings))
    assert engine.asked == []


class Answer(BaseModel):
    city: str
    sunny: bool


def test_a_typed_answer_is_a_tool_call() -> None:
    wrong, right = call("final_result", city="Rome"), call("final_result", city="Rome", sunny=True)
    model = TokenModel(TokenClient(scripted(TEXTS[1], thought("Rome.") + wrong, right)), on_refusal="raise")
    result = asyncio.run(agent(model, output_type=Answer).run(QUESTION))
    assert result.output == Answer(city="Rome", sunny=True)
    assert_by_ids(model.calls)


def test_a_typed_answer_by_the_engine_s_schema_is_refused() -> None:
    engine = scripted("Hello.")
    typed = agent(TokenModel(TokenClient(engine)), output_type=NativeOutput(Answer))
    with pytest.raises(exceptions.UserError, match="Native structured output is not supported"):
        asyncio.run(typed.run(QUESTION))
    assert engine.asked == []


@RUNS
def test_usage_is_the_engine_s(run: Any) -> None:
    engine = scripted(*TEXTS)
    usage = asyncio.run(run(TokenModel(TokenClient(engine)))).usage
    counted = [reply.usage for reply in engine.replies]
    assert usage.requests == len(TEXTS)
    assert usage.input_tokens == sum(one.prompt_tokens for one in counted)
    assert usage.output_tokens == sum(one.completion_tokens for one in counted)
    assert usage.cache_read_tokens == sum(one.cached_tokens or 0 for one in counted) > 0


KINDS = [
    (ServerError("out of memory"), exceptions.ModelServerError),
    (UnreachableError("no answer"), exceptions.ModelConnectionError),
    (OverlongError("too long"), exceptions.ModelContextWindowExceededError),
]


@RUNS
@pytest.mark.parametrize(("error", "kind"), KINDS, ids=[kind.__name__ for _, kind in KINDS])
def test_an_engine_s_error_is_one_that_the_sdk_knows(run: Any, error: Exception, kind: Any) -> None:
    model = TokenModel(TokenClient(attrs.evolve(scripted("Hello."), error=error)))
    with pytest.raises(kind, match=str(error)) as raised:
        asyncio.run(run(model))
    assert raised.value.__cause__ is error
    assert raised.value.model_name == model.model_name
    assert model.calls.calls == []


def test_another_model_may_take_over_after_an_engine_s_error() -> None:
    failing = TokenModel(TokenClient(attrs.evolve(scripted(), error=ServerError("out of memory"))))
    result = asyncio.run(whole(FallbackModel(failing, TestModel(call_tools=[]))))
    assert result.output == "success (no tool calls)"


@RUNS
def test_a_cancelled_run_aborts_the_turn(run: Any) -> None:
    engine = attrs.evolve(scripted(), hangs=True)
    model = TokenModel(TokenClient(engine))
    assert_aborts(engine, run(model))
    assert model.calls.calls == []


def test_a_stream_that_is_left_aborts_the_turn() -> None:
    engine = scripted(HELLO, "It is sunny in Rome, however.")
    model = TokenModel(TokenClient(engine), decode=vocabulary().decode)

    async def leave() -> None:
        history = (await whole(model)).all_messages()
        engine.stalls = True
        async with agent(model).run_stream("And in Rome?", message_history=history) as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                await result.cancel()
                break
        await engine.cancelled.wait()

    asyncio.run(asyncio.wait_for(leave(), 20))
    assert len(model.calls.calls) == 1


@RUNS
def test_a_request_that_takes_too_long_is_aborted(run: Any) -> None:
    engine = attrs.evolve(scripted(), hangs=True)
    with pytest.raises(exceptions.ModelRequestTimeout):
        asyncio.run(run(TokenModel(TokenClient(engine)), request_timeout=0.05))
    assert engine.cancelled.is_set()


def test_a_branch_gives_two_rows_and_trains_the_common_turns_once() -> None:
    engine = scripted(*TEXTS, TEXTS[2], "In Rome.", "In Lima.")
    model = TokenModel(TokenClient(engine), on_refusal="raise")

    async def branch() -> None:
        history = (await whole(model)).all_messages()
        await whole(model, "Where?", history)
        await streamed(model, "And where then?", history)

    asyncio.run(branch())
    rows = model.calls.rows(reward=1.0).rows
    assert len(rows) == 2
    assert went(model.calls) == {"MITO": 1, "TITO": 8}
    first, second = trained(model.calls)
    assert first == [index for ids in sampled(model.calls)[:8] for index in ids]
    assert second == sampled(model.calls)[8]
    assert [row.reward for row in rows] == [1.0, 1.0]


def test_an_edited_history_is_counted_and_may_raise() -> None:
    for on_refusal in ("rerender", "raise"):
        model = TokenModel(TokenClient(scripted(HELLO, HELLO)), on_refusal=on_refusal)

        async def edit(model: TokenModel = model) -> None:
            history = (await whole(model)).all_messages()
            edited = [*history[:-1], ModelResponse(parts=[TextPart("Bonjour.")])]
            await whole(model, "And now?", edited)

        if on_refusal == "raise":
            with pytest.raises(RefusedError, match="NO_PREFIX"):
                asyncio.run(edit())
        else:
            asyncio.run(edit())
            assert trained(model.calls) == sampled(model.calls)
        assert dict(model.calls.refused) == {"NO_PREFIX": 1}


def test_a_turn_goes_back_as_it_was_sampled_whatever_it_says() -> None:
    odd_call = '{"name": "hour", "arguments": {"city": "x", "exact": 1e400, "city": "y"}}'
    texts = (f"<tool_call>\n{odd_call}\n</tool_call>", "So <think>it was</think> spelled. ")
    model = TokenModel(TokenClient(scripted(HELLO, *texts, "And so on.")), on_refusal="raise")

    async def talk() -> list[Any]:
        history: list[Any] = []
        for place in range(3):
            history = (await whole(model, f"Question {place}?", history)).all_messages()
        return history

    said = [one.text for one in asyncio.run(talk()) if isinstance(one, ModelResponse)]
    assert said == ["\n\nHello.", None, "So <think>it was</think> spelled. ", "And so on."]
    assert '"exact": 1e400, "city": "y"' in str(model.calls.calls[-1].step.prompt)
    assert_by_ids(model.calls)


@RUNS
def test_a_cut_turn_is_kept(run: Any) -> None:
    model = TokenModel(TokenClient(scripted(HELLO, "It is sunny in Rome, however.", "So it is.")))

    async def talk() -> Any:
        history = (await run(model)).all_messages()
        cut = await run(model, "And in Rome?", history, max_tokens=4)
        return await run(model, "Go on.", cut.all_messages())

    asyncio.run(talk())
    assert [one.finish_reason for one in model.calls.calls] == ["stop", "length", "stop"]
    assert_by_ids(model.calls)


@pytest.mark.parametrize("seed", range(8))
def test_turns_with_faults_go_by_ids(seed: int) -> None:
    model = TokenModel(TokenClient(embedded(seed=seed), Policy(odd_stop=OddStop.KEEP)), on_refusal="raise")

    async def talk() -> None:
        history: list[Any] = []
        for place in range(5):
            run = (whole, streamed)[place % 2]
            result = await run(model, f"Question {place}: how is the weather?", history, max_tokens=400)
            history = result.all_messages()

    with contextlib.suppress(exceptions.UnexpectedModelBehavior):  # a turn without end or answer, thrice
        asyncio.run(talk())
    assert_by_ids(model.calls)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "version", lambda _: "2.69.0")
    with pytest.raises(FrameworkError, match=r"pydantic-ai-slim is 2\.69\.0: .* with >=2\.68,<2\.69"):
        importlib.reload(pydantic_ai)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(InputError, match="on_refusal is 'end': give 'rerender' or 'raise'"):
        TokenModel(TokenClient(scripted()), on_refusal="end")  # type: ignore[arg-type]  # that is the point
