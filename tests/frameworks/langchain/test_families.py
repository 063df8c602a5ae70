"""Agents of LangChain over real chat templates: prompts are those without the SDK."""

from __future__ import annotations

import asyncio
import contextlib

from langchain.agents import create_agent
from langchain_core.tools import tool

from tests.frameworks.families import EVERY_FAMILY, assert_as_without_sdk, client, engine
from tests.model_folders import needs_families
from tito_core import TemplateRefused
from tito_io.integrations.langchain import TokenChatModel


@tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return f"It is sunny in {city} for {days} days."


@tool
def hour(city: str, exact: bool) -> str:
    """Tell the time."""
    return f"noon in {city}" if exact else "about noon"


@needs_families
@EVERY_FAMILY
def test_prompts_are_those_without_the_sdk(name: str) -> None:
    sampler = engine(name)
    model = TokenChatModel(client=client(sampler))
    agent = create_agent(model, [weather, hour], system_prompt="Be brief.", name="helper")

    async def talk() -> None:
        first = await agent.ainvoke({"messages": [("user", "How is the weather?")]})
        history = [*first["messages"], ("user", "Sure?")]
        async for _ in agent.astream({"messages": history}, stream_mode="messages"):
            pass

    with contextlib.suppress(TemplateRefused):  # a template without tools
        asyncio.run(talk())
    assert_as_without_sdk(name, model.calls, sampler)
