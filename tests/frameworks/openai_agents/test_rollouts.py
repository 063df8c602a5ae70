"""What only the OpenAI Agents SDK has: choices of tools, retries, handoffs, and what needs a server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest
from agents import Agent, ModelRetrySettings, ModelSettings, Runner, WebSearchTool, retry_policies
from agents.exceptions import UserError
from pydantic import BaseModel

from tests.frameworks.laws.sdk import CALLING, TEXTS
from tests.frameworks.openai_agents.sdk import SDK, agent
from tests.frameworks.scripted import call, sampled, scripted, thought, trained
from tito_io.client import TokenClient
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import EngineAnswer, EngineError, ServerError, UnreachableError
from tito_io.integrations.openai_agents import TokenModel

RUNS = pytest.mark.parametrize("run", [SDK().whole, SDK().streamed])


def test_the_sdk_has_no_setting_that_nobody_looked_at() -> None:
    known = {
        *("temperature", "top_p", "frequency_penalty", "presence_penalty", "max_tokens", "reasoning"),
        *("tool_choice", "parallel_tool_calls", "truncation", "verbosity", "response_include"),
        *("top_logprobs", "extra_query", "extra_body", "extra_headers", "extra_args", "context_management"),
        *("metadata", "store", "prompt_cache_retention", "prompt_cache_options"),  # without effect
        *("include_usage", "preserve_raw_usage", "retry", "timeout"),  # for the SDK itself
    }
    assert {field.name for field in dataclasses.fields(ModelSettings)} == known


@pytest.mark.parametrize(("choice", "called"), [("required", ()), ("hour", ("hour",))])
@RUNS
def test_a_forced_call_reaches_the_engine(run: Any, choice: str, called: tuple[str, ...]) -> None:
    engine = scripted(CALLING, "Hello.")
    asyncio.run(run(TokenModel(TokenClient(engine)), tool_choice=choice, parallel_tool_calls=False))
    constraints = [sampling.constraint for *_, sampling in engine.asked]
    # The SDK takes the choice back once a tool was called, so that its loop ends.
    assert constraints == [Constraint(must_call=called, one_call=True), Constraint(one_call=True)]


class Answer(BaseModel):
    text: str


def test_a_typed_answer_is_a_schema() -> None:
    engine = scripted(thought("Briefly.") + '{"text": "Sunny."}')
    typed = Agent(name="typed", model=TokenModel(TokenClient(engine)), output_type=Answer)
    assert asyncio.run(Runner.run(typed, "hi")).final_output == Answer(text="Sunny.")
    [constraint] = [sampling.constraint for *_, sampling in engine.asked]
    assert constraint is not None
    assert constraint.schema is not None
    assert set(constraint.schema["properties"]) == {"text"}


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


def test_a_handoff_begins_another_conversation_and_is_counted() -> None:
    model = TokenModel(TokenClient(scripted(call("transfer_to_other"), thought("Hm.") + "I am the other.")))
    other = Agent(name="other", instructions="Be another.", model=model)
    first = Agent(name="first", instructions="Hand over.", model=model, handoffs=[other])
    assert asyncio.run(Runner.run(first, "hi")).final_output.endswith("I am the other.")
    assert trained(model.calls) == sampled(model.calls)
    assert dict(model.calls.refused) == {"NO_PREFIX": 1}
