"""A LangGraph agent: `URL WAY TASK`, where WAY is chat, chat with a name or anthropic."""

from __future__ import annotations

import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def read_note(path: str, lines: int) -> str:
    """Read the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


def model(url: str, way: str) -> BaseChatModel:
    """Return the model of an API."""
    if way == "anthropic":
        return ChatAnthropic(model="any", base_url=url, api_key="none", max_retries=0)
    return ChatOpenAI(model="any", base_url=f"{url}/v1", api_key="none", max_retries=0)


url, way, task = sys.argv[1:]
name = "reader" if way == "chat with a name" else None  # is sent with each assistant message
agent = create_agent(model(url, way), tools=[read_note], system_prompt="Be brief.", name=name)
found = agent.invoke({"messages": [{"role": "user", "content": task}]}, {"recursion_limit": 50})
print(found["messages"][-1].content)
