"""An agent of LlamaIndex: `URL WAY TASK`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


def read_note(path: str, lines: int) -> str:
    """Read the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


async def main(url: str, task: str) -> None:
    """Run the agent."""
    model = OpenAILike(
        model="any", api_base=f"{url}/v1", api_key="none", is_chat_model=True, is_function_calling_model=True
    )
    print(await FunctionAgent(tools=[read_note], llm=model, system_prompt="Be brief.").run(task))


url, _, task = sys.argv[1:]
asyncio.run(main(url, task))
