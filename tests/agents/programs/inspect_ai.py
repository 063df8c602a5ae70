"""An agent of Inspect: `URL WAY TASK`, where WAY is chat or responses."""

from __future__ import annotations

import sys
from pathlib import Path

from inspect_ai import Task
from inspect_ai import eval as evaluated
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.tool import Tool, tool


def first_lines(path: str, lines: int) -> str:
    """Return the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


@tool
def read_note() -> Tool:
    """Return the tool."""

    async def execute(path: str, lines: int) -> str:
        """Read the first lines of a note.

        Args:
            path: The note's path.
            lines: How many lines are read.
        """
        return first_lines(path, lines)

    return execute


url, way, task = sys.argv[1:]
model = get_model("openai/any", base_url=f"{url}/v1", api_key="none", responses_api=way == "responses")
agent = react(prompt="Be brief.", tools=[read_note()], submit=False)
(log,) = evaluated(Task([Sample(task)], solver=agent), model, display="none")
print(log.samples[0].output.completion)
sys.exit(log.status != "success")
