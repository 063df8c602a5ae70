"""An agent of Pydantic AI: `URL WAY TASK`, where WAY is chat, responses, anthropic or google."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider


def model(url: str, way: str) -> Model:
    """Return the model of an API."""
    if way == "anthropic":
        return AnthropicModel("any", provider=AnthropicProvider(api_key="none", base_url=url))
    if way == "google":  # with a model of this name, the mode of function calls is VALIDATED
        return GoogleModel("gemini-3-pro-preview", provider=GoogleProvider(api_key="none", base_url=url))
    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    return {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[way]("any", provider=provider)


url, way, task = sys.argv[1:]
agent = Agent(model(url, way), instructions="Be brief.", retries=0)


@agent.tool_plain
def read_note(path: str, lines: int) -> str:
    """Read the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


print(agent.run_sync(task).output)
