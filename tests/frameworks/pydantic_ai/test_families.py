"""Agents of Pydantic AI over real chat templates: prompts are those without the SDK."""

from __future__ import annotations

import asyncio
import contextlib

from pydantic_ai import Agent

from tests.frameworks.families import EVERY_FAMILY, assert_as_without_sdk, client, engine
from tests.model_folders import needs_families
from tito_core import TemplateRefused
from tito_io.integrations.pydantic_ai import TokenModel


def weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return f"It is sunny in {city} for {days} days."


def hour(city: str, exact: bool) -> str:
    """Tell the time."""
    return f"noon in {city}" if exact else "about noon"


@needs_families
@EVERY_FAMILY
def test_prompts_are_those_without_the_sdk(name: str) -> None:
    sampler = engine(name)
    model = TokenModel(client(sampler))
    agent = Agent(model, instructions="Be brief.", tools=[weather, hour])

    async def talk() -> None:
        history = (await agent.run("How is the weather?")).all_messages()
        async with agent.run_stream("Sure?", message_history=history) as result:
            await result.get_output()

    with contextlib.suppress(TemplateRefused):  # a template without tools
        asyncio.run(talk())
    assert_as_without_sdk(name, model.calls, sampler)
