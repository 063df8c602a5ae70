"""An agent of Semantic Kernel: `URL WAY TASK`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


class Notes:
    """The tools."""

    @kernel_function(name="read_note", description="Read the first lines of a note.")
    def read_note(self, path: str, lines: int) -> str:
        """Return the first lines of a note."""
        return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


async def main(url: str, task: str) -> None:
    """Run the agent."""
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    model = OpenAIChatCompletion(ai_model_id="any", async_client=client)
    agent = ChatCompletionAgent(
        service=model,
        name="reader",
        instructions="Be brief.",
        plugins=[Notes()],
        # after five rounds it would ask for the answer without tools
        function_choice_behavior=FunctionChoiceBehavior(maximum_auto_invoke_attempts=20),
    )
    print(await agent.get_response(messages=task))


url, _, task = sys.argv[1:]
asyncio.run(main(url, task))
