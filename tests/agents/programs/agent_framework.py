"""An agent of Microsoft's Agent Framework: `URL WAY TASK`, where WAY is chat or responses."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

CLIENTS = {"chat": OpenAIChatCompletionClient, "responses": OpenAIChatClient}


def read_note(path: str, lines: int) -> str:
    """Read the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


async def main(url: str, way: str, task: str) -> None:
    """Run the agent."""
    client = CLIENTS[way](model="any", base_url=f"{url}/v1", api_key="none")
    print(await Agent(client, "Be brief.", tools=[read_note]).run(task))


asyncio.run(main(*sys.argv[1:]))
