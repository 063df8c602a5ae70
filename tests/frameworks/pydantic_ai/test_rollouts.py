"""What only Pydantic AI has: repeated calls, typed answers, other models and limits of time."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest
from pydantic import BaseModel
from pydantic_ai import ModelRetry, NativeOutput, exceptions
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel

from tests.frameworks.laws.sdk import HELLO, QUESTION, TEXTS
from tests.frameworks.pydantic_ai.sdk import OTHERS, SDK, agent
from tests.frameworks.scripted import assert_by_ids, call, scripted, thought
from tito_io.client import TokenClient
from tito_io.engines.protocol import Sampling, ServerError
from tito_io.integrations.pydantic_ai import TokenModel

TestModel.__test__ = False  # it is a model for tests, and no test


def test_a_call_that_a_tool_wants_to_be_repeated_goes_by_ids() -> None:
    model = TokenModel(TokenClient(scripted(call("find", city="Nowhere"), "So.")), on_refusal="raise")
    asking = agent(model)

    @asking.tool_plain
    def find(city: str) -> str:
        """Find a city."""
        raise ModelRetry(f"There is no {city}.")

    asyncio.run(asking.run(QUESTION))
    assert "There is no Nowhere." in model.calls.calls[1].step.prompt[-1]["content"]
    assert_by_ids(model.calls)


def test_settings_of_a_model_are_overridden_by_those_of_a_run() -> None:
    engine = scripted(HELLO)
    model = TokenModel(TokenClient(engine), settings={"seed": 1, "temperature": 0.5})
    asyncio.run(SDK().whole(model, seed=7))
    assert engine.samplings() == [Sampling(temperature=0.5, seed=7)]


def test_the_settings_that_are_refused_are_many() -> None:
    assert {"max_retries", "thinking", "timeout", "extra_headers", "openai_logprobs", "cache"} <= {*OTHERS}


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


def test_another_model_may_take_over_after_an_engine_s_error() -> None:
    failing = TokenModel(TokenClient(attrs.evolve(scripted(), error=ServerError("out of memory"))))
    with pytest.raises(exceptions.ModelServerError) as raised:
        asyncio.run(agent(failing).run(QUESTION))
    assert raised.value.model_name == failing.model_name
    result = asyncio.run(agent(FallbackModel(failing, TestModel(call_tools=[]))).run(QUESTION))
    assert result.output == "success (no tool calls)"


@pytest.mark.parametrize("run", [SDK().whole, SDK().streamed])
def test_a_request_that_takes_too_long_is_aborted(run: Any) -> None:
    engine = attrs.evolve(scripted(), hangs=True)
    with pytest.raises(exceptions.ModelRequestTimeout):
        asyncio.run(run(TokenModel(TokenClient(engine)), request_timeout=0.05))
    assert engine.cancelled.is_set()
