"""An agent of AG2: `URL WAY TASK`, where WAY is chat or responses."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ag2 import Agent
from ag2.config import OpenAIConfig, OpenAIResponsesConfig

MODELS = {"chat": OpenAIConfig, "responses": OpenAIResponsesConfig}


def read_note(path: str, lines: int) -> str:
    """Read the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


async def main(url: str, way: str, task: str) -> None:
    """Run the agent."""
    model = MODELS[way](model="any", base_url=f"{url}/v1", api_key="none")
    print((await Agent("reader", "Be brief.", config=model, tools=[read_note]).ask(task)).body)


asyncio.run(main(*sys.argv[1:]))
