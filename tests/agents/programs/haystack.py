"""An agent of Haystack: `URL WAY TASK`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret


@tool
def read_note(path: Annotated[str, "The note."], lines: Annotated[int, "How many."]) -> str:
    """Read the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


url, _, task = sys.argv[1:]
model = OpenAIChatGenerator(api_key=Secret.from_token("none"), api_base_url=f"{url}/v1", model="any")
agent = Agent(chat_generator=model, tools=[read_note], system_prompt="Be brief.")
print(agent.run(messages=[ChatMessage.from_user(task)])["last_message"].text)
