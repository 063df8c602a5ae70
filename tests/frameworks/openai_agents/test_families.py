"""Agents of the OpenAI Agents SDK over real chat templates: prompts are those without the SDK."""

from __future__ import annotations

import asyncio
import contextlib

from agents import Agent, Runner, function_tool, set_tracing_disabled

from tests.frameworks.families import EVERY_FAMILY, assert_as_without_sdk, client, engine
from tests.model_folders import needs_families
from tito_core import TemplateRefused
from tito_io.integrations.openai_agents import TokenModel

set_tracing_disabled(True)


@function_tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return f"It is sunny in {city} for {days} days."


@function_tool
def hour(city: str, exact: bool) -> str:
    """Tell the time."""
    return f"noon in {city}" if exact else "about noon"


@needs_families
@EVERY_FAMILY
def test_prompts_are_those_without_the_sdk(name: str) -> None:
    sampler = engine(name)
    model = TokenModel(client(sampler))
    agent = Agent(name="helper", instructions="Be brief.", tools=[weather, hour], model=model)

    async def talk() -> None:
        history = (await Runner.run(agent, "How is the weather?")).to_input_list()
        result = Runner.run_streamed(agent, [*history, {"role": "user", "content": "Sure?"}])
        async for _ in result.stream_events():
            pass

    with contextlib.suppress(TemplateRefused):  # a template without tools
        asyncio.run(talk())
    assert_as_without_sdk(name, model.calls, sampler)
