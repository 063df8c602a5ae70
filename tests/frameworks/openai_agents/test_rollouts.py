"""Agents of the OpenAI Agents SDK run without a server, and every turn after the first goes by ids."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib
from typing import Any

import attrs
import pytest
from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    Runner,
    WebSearchTool,
    function_tool,
    retry_policies,
    set_tracing_disabled,
)
from agents.exceptions import ModelBehaviorError, UserError
from openai.types.shared import Reasoning
from pydantic import BaseModel

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
from tito_io.engines.protocol import EngineAnswer, EngineError, Sampling, ServerError, UnreachableError
from tito_io.engines.registry import embedded
from tito_io.integrations import framework, openai_agents
from tito_io.integrations.framework import FrameworkError
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.openai_agents import TokenModel

set_tracing_disabled(True)

TEXTS = (
    thought("Both at once, then.")
    + call("weather", city="Köln")
    + "\n"
    + call("hour", city="Köln", exact=True),
    thought("It is unclear.") + "Let me look again.\n" + call("weather", city="Köln/Bonn", days=2),
    call("hour", city='the "old" town', exact=False),
    "One more.\n" + call("weather", city="Rome", days=3),
    thought("That is strange.") + call("hour", city="Rome", exact=True),
    thought("Enough of that.") + "It is sunny in Rome, however.",
)
"""Six turns: parallel calls, text before a call, with reasoning and without."""


@function_tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: Where.
        days: For how many days.
    """
    return f"It is sunny in {city} for {days} days."


@function_tool
def hour(city: str, exact: bool) -> str:
    """Tell the time."""
    return f"noon in {city}" if exact else "about noon"


def agent(model: TokenModel, **settings: Any) -> Agent[None]:
    return Agent(
        name="helper",
        instructions="Help, and be brief.",
        tools=[weather, hour],
        model=model,
        model_settings=ModelSettings(**settings),
    )


async def whole(model: TokenModel, prompt: Any = "How is the weather in Köln?", **settings: Any) -> Any:
    return await Runner.run(agent(model, **settings), prompt)


async def streamed(model: TokenModel, prompt: Any = "How is the weather in Köln?", **settings: Any) -> Any:
    result = Runner.run_streamed(agent(model, **settings), prompt)
    async for _ in result.stream_events():
        pass
    return result


RUNS = pytest.mark.parametrize("run", [whole, streamed])


@RUNS
def test_an_agent_with_two_tools_runs_to_its_end_by_ids(run: Any) -> None:
    engine = scripted(*TEXTS)
    model = TokenModel(TokenClient(engine), on_refusal="raise")
    result = asyncio.run(run(model))
    assert result.final_output == "It is sunny in Rome, however."
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
        {"role": "user", "content": "How is the weather in Köln?"},
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


def test_streaming_gives_the_same_turns() -> None:
    models = [TokenModel(TokenClient(scripted(*TEXTS))) for _ in range(2)]
    results = [asyncio.run(run(model)) for run, model in zip((whole, streamed), models, strict=True)]
    whole_ids, streamed_ids = ([one.ids for one in model.calls.calls] for model in models)
    assert whole_ids == streamed_ids
    # The first turn is a message of the server's, which writes white space otherwise in streams.
    kinds, others = ([[item.type for item in one.output] for one in run.raw_responses[1:]] for run in results)
    assert kinds == others
    assert kinds[0] == ["reasoning", "message", "function_call"]
    assert results[0].final_output == results[1].final_output


def test_text_is_streamed_as_it_comes() -> None:
    text = "It is sunny in Rome, however, and it stays so for days."
    model = TokenModel(TokenClient(scripted("Hello.", text)), decode=vocabulary().decode)

    async def deltas() -> list[str]:
        first = await whole(model)
        again = [*first.to_input_list(), {"role": "user", "content": "And in Rome?"}]
        result = Runner.run_streamed(agent(model), again)
        return [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]

    pieces = asyncio.run(deltas())
    assert "".join(pieces) == text
    assert len(pieces) > 5


@RUNS
def test_settings_reach_the_engine(run: Any) -> None:
    engine = scripted(TEXTS[2], "Hello.")
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 150,
        "frequency_penalty": 0.25,
        "presence_penalty": 0.125,
        "reasoning": Reasoning(effort="low"),
        "parallel_tool_calls": True,
        "extra_args": {"seed": 7, "stop": ["END", "FIN"]},
        "extra_body": {"top_k": 5},
        "extra_headers": {"User-Agent": "mine"},
    }
    asyncio.run(run(TokenModel(TokenClient(engine)), **settings))
    extra = {"top_p": 0.9, "frequency_penalty": 0.25, "presence_penalty": 0.125, "top_k": 5}
    expected = Sampling(max_tokens=150, temperature=0.5, seed=7, stop=("END", "FIN"), extra=extra)
    assert engine.samplings() == [expected, expected]
    assert [rendering.template_args for *_, rendering, _ in engine.asked if rendering] == [
        {"reasoning_effort": "low"}
    ] * 2


def test_the_sdk_has_no_setting_that_nobody_looked_at() -> None:
    known = {
        *("temperature", "top_p", "frequency_penalty", "presence_penalty", "max_tokens", "reasoning"),
        *("tool_choice", "parallel_tool_calls", "truncation", "verbosity", "response_include"),
        *("top_logprobs", "extra_query", "extra_body", "extra_headers", "extra_args", "context_management"),
        *("metadata", "store", "prompt_cache_retention", "prompt_cache_options"),  # without effect
        *("include_usage", "preserve_raw_usage", "retry", "timeout"),  # for the SDK itself
    }
    assert {field.name for field in dataclasses.fields(ModelSettings)} == known


class Answer(BaseModel):
    text: str


@pytest.mark.parametrize(("choice", "called"), [("required", ()), ("hour", ("hour",))])
@RUNS
def test_a_forced_call_reaches_the_engine(run: Any, choice: str, called: tuple[str, ...]) -> None:
    engine = scripted(TEXTS[2], "Hello.")
    asyncio.run(run(TokenModel(TokenClient(engine)), tool_choice=choice, parallel_tool_calls=False))
    constraints = [sampling.constraint for *_, sampling in engine.asked]
    # The SDK takes the choice back once a tool was called, so that its loop ends.
    assert constraints == [Constraint(must_call=called, one_call=True), Constraint(one_call=True)]


def test_a_typed_answer_is_a_schema() -> None:
    engine = scripted(thought("Briefly.") + '{"text": "Sunny."}')
    typed = Agent(name="typed", model=TokenModel(TokenClient(engine)), output_type=Answer)
    assert asyncio.run(Runner.run(typed, "hi")).final_output == Answer(text="Sunny.")
    [constraint] = [sampling.constraint for *_, sampling in engine.asked]
    assert constraint is not None
    assert constraint.schema is not None
    assert set(constraint.schema["properties"]) == {"text"}


BAD: list[tuple[str, dict[str, Any]]] = [
    ("tool_choice", {"tool_choice": "minute"}),
    ("truncation", {"truncation": "auto"}),
    ("text.verbosity", {"verbosity": "low"}),
    ("top_logprobs|output_text.logprobs", {"top_logprobs": 3}),
    ("include", {"response_include": ["web_search_call.results"]}),
    ("extra_query", {"extra_query": {"a": "b"}}),
    ("extra_headers", {"extra_headers": {"X-Key": "b"}}),
    ("context_management", {"context_management": [{"type": "compaction", "compact_threshold": 9}]}),
    ("maxtokens", {"extra_args": {"maxtokens": 9}}),
    ("n: changes what is sampled", {"extra_args": {"n": 2}}),
    ("stop", {"extra_args": {"stop": [3]}}),
    ("seed", {"extra_args": {"seed": "x"}}),
    ("previous_response_id", {"extra_args": {"previous_response_id": "resp_1"}}),
]


@RUNS
@pytest.mark.parametrize(("name", "settings"), BAD, ids=[name for name, _ in BAD])
def test_settings_that_cannot_be_honoured_are_refused_by_name(
    run: Any, name: str, settings: dict[str, Any]
) -> None:
    engine = scripted("Hello.")
    with pytest.raises(UserError, match=name):
        asyncio.run(run(TokenModel(TokenClient(engine)), **settings))
    assert engine.asked == []


def test_what_needs_a_server_is_refused_by_name() -> None:
    engine = scripted("Hello.")
    model = TokenModel(TokenClient(engine))
    with pytest.raises(UserError, match="previous_response_id"):
        asyncio.run(Runner.run(agent(model), "hi", previous_response_id="resp_1"))
    with pytest.raises(UserError, match="conversation"):
        asyncio.run(Runner.run(agent(model), "hi", conversation_id="conv_1"))
    with pytest.raises(UserError, match=r"a tool of type 'web_search"):
        asyncio.run(Runner.run(Agent(name="searcher", model=model, tools=[WebSearchTool()]), "hi"))
    assert engine.asked == []


@RUNS
def test_usage_is_the_engine_s(run: Any) -> None:
    engine = scripted(*TEXTS)
    usage = asyncio.run(run(TokenModel(TokenClient(engine)))).context_wrapper.usage
    counted = [reply.usage for reply in engine.replies]
    assert usage.requests == len(TEXTS)
    assert usage.input_tokens == sum(one.prompt_tokens for one in counted)
    assert usage.output_tokens == sum(one.completion_tokens for one in counted)
    cached = sum(one.cached_tokens or 0 for one in counted)
    assert usage.input_tokens_details.cached_tokens == cached > 0


@RUNS
def test_an_engine_s_error_comes_out_as_it_is(run: Any) -> None:
    engine = attrs.evolve(scripted("Hello."), error=ServerError("the engine is out of memory"))
    model = TokenModel(TokenClient(engine))
    with pytest.raises(ServerError, match="out of memory"):
        asyncio.run(run(model))
    assert model.calls.calls == []
    assert model.calls.client.counts.errors == {"ServerError": 1}


FAILURES: list[tuple[EngineError, Any, bool]] = [
    (UnreachableError("no answer"), retry_policies.network_error(), True),
    (ServerError("busy", EngineAnswer(503, {})), retry_policies.http_status([503]), True),
    (ServerError("broken", EngineAnswer(500, {})), retry_policies.http_status([503]), False),
    (ServerError("broken", EngineAnswer(500, {})), retry_policies.network_error(), False),
]


@RUNS
@pytest.mark.parametrize(("error", "policy", "again"), FAILURES)
def test_the_sdk_knows_which_errors_to_try_again(
    run: Any, error: EngineError, policy: Any, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scripted(*TEXTS[2:])
    errors, sample = [error], type(engine).sample

    async def failing(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return await sample(*arguments)

    monkeypatch.setattr(type(engine), "sample", failing)
    retry = ModelRetrySettings(max_retries=1, policy=policy, backoff={"initial_delay": 0.0, "jitter": False})
    model = TokenModel(TokenClient(engine))
    with contextlib.nullcontext() if again else pytest.raises(type(error)):
        asyncio.run(run(model, retry=retry))
    assert len(model.calls.calls) == (4 if again else 0)


@RUNS
def test_a_prompt_beyond_the_context_is_an_error(run: Any) -> None:
    model = TokenModel(TokenClient(scripted("Hello.", max_model_len=64)))
    with pytest.raises(EngineError, match="maximum context length is 64"):
        asyncio.run(run(model))


@RUNS
def test_a_cancelled_run_aborts_the_turn(run: Any) -> None:
    engine = attrs.evolve(scripted(), hangs=True)
    model = TokenModel(TokenClient(engine))
    assert_aborts(engine, run(model))
    assert model.calls.calls == []


def test_a_stream_that_is_left_aborts_the_turn() -> None:
    engine = scripted("Hello.", "It is sunny in Rome, however.")
    model = TokenModel(TokenClient(engine), decode=vocabulary().decode)

    async def leave() -> None:
        again = [*(await whole(model)).to_input_list(), {"role": "user", "content": "And in Rome?"}]
        engine.stalls = True
        result = Runner.run_streamed(agent(model), again)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                result.cancel()
        await engine.cancelled.wait()

    asyncio.run(asyncio.wait_for(leave(), 20))
    assert len(model.calls.calls) == 1


def test_a_branch_gives_two_rows_and_trains_the_common_turns_once() -> None:
    model = TokenModel(TokenClient(scripted(*TEXTS, TEXTS[2], "In Rome.", "In Lima.")), on_refusal="raise")

    async def branch() -> None:
        history = (await whole(model)).to_input_list()
        await whole(model, [*history, {"role": "user", "content": "Where?"}])
        await streamed(model, [*history, {"role": "user", "content": "And where then?"}])

    asyncio.run(branch())
    rows = model.calls.rows(reward=1.0).rows
    assert len(rows) == 2
    assert went(model.calls) == {"MITO": 1, "TITO": 8}
    assert sorted(index for ids in trained(model.calls) for index in ids) == sorted(
        index for ids in sampled(model.calls) for index in ids
    )
    assert [sum(row.loss_mask) for row in rows] == [
        sum(map(len, sampled(model.calls)[:8])),
        len(sampled(model.calls)[8]),
    ]
    assert [row.reward for row in rows] == [1.0, 1.0]


def test_a_handoff_begins_another_conversation_and_is_counted() -> None:
    texts = (call("transfer_to_other"), thought("Hm.") + "I am the other.")
    for on_refusal in ("rerender", "raise"):
        model = TokenModel(TokenClient(scripted(*texts)), on_refusal=on_refusal)
        other = Agent(name="other", instructions="Be another.", model=model)
        first = Agent(name="first", instructions="Hand over.", model=model, handoffs=[other])
        if on_refusal == "raise":
            with pytest.raises(RefusedError, match="NO_PREFIX"):
                asyncio.run(Runner.run(first, "hi"))
        else:
            assert asyncio.run(Runner.run(first, "hi")).final_output.endswith("I am the other.")
            assert trained(model.calls) == sampled(model.calls)
        assert dict(model.calls.refused) == {"NO_PREFIX": 1}


@RUNS
def test_a_cut_turn_ends_the_run_and_is_kept(run: Any) -> None:
    model = TokenModel(TokenClient(scripted(TEXTS[2], "It is sunny in Rome, however.")))
    with pytest.raises(ModelBehaviorError, match="max_output_tokens"):
        asyncio.run(run(model, max_tokens=5))
    assert [(one.finish_reason, len(one.step.completion_ids)) for one in model.calls.calls] == [("length", 5)]


@pytest.mark.parametrize("seed", range(8))
def test_turns_with_faults_go_by_ids(seed: int) -> None:
    model = TokenModel(TokenClient(embedded(seed=seed), Policy(odd_stop=OddStop.KEEP)), on_refusal="raise")

    async def talk() -> None:
        prompt: Any = []
        for place in range(5):
            prompt = [*prompt, {"role": "user", "content": f"Question {place}: how is the weather?"}]
            run = (whole, streamed)[place % 2]
            prompt = (await run(model, prompt, max_tokens=400)).to_input_list()

    with contextlib.suppress(ModelBehaviorError):  # a turn without end, or a tool that is not there
        asyncio.run(talk())
    assert_by_ids(model.calls)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "version", lambda _: "0.25.0")
    with pytest.raises(FrameworkError, match=r"openai-agents is 0\.25\.0: .* tested with >=0\.24,<0\.25"):
        importlib.reload(openai_agents)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(InputError, match="on_refusal is 'end': give 'rerender' or 'raise'"):
        TokenModel(TokenClient(scripted()), on_refusal="end")  # type: ignore[arg-type]  # that is the point
