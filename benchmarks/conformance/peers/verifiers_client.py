"""The token client of verifiers 0.1.12; its requests to a server's `/tokenize` are answered here."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from verifiers import types
from verifiers.clients import OpenAIChatCompletionsTokenClient

from benchmarks.conformance.asked import Asked, typed

PACKAGE, OPERATION = "verifiers", "`get_prompt_ids` of the token client"


class AnsweredClient(OpenAIChatCompletionsTokenClient):  # type: ignore[misc]  # not installed where types are checked
    """The client beside a server that renders with the vector's template."""

    def __init__(self, asked: Asked) -> None:
        """Keep the question; no server is asked."""
        super().__init__(object())
        self.asked = asked

    async def tokenize(self, messages: Any, extra_kwargs: Any = None, **_: Any) -> list[int]:
        """Answer as vLLM's route, which reads arguments that are JSON text."""
        options = {"add_generation_prompt": True, **(extra_kwargs or {}), **self.asked.arguments}
        read = [_read(message) for message in messages]
        render = self.asked.tokenizer.apply_chat_template
        found: list[int] = render(read, tools=self.asked.tools, return_dict=False, **options)
        return found


def next_prompt(asked: Asked) -> list[int] | None:
    """Ask the client for the prompt's ids; it matches messages itself."""
    return asyncio.run(_ask(asked))


async def _ask(asked: Asked) -> list[int] | None:
    client = AnsweredClient(asked)
    steps = [
        {
            "prompt": [typed(types, message) for message in step["messages"]],
            "completion": [typed(types, step["turn"])],
            "tokens": {
                "prompt_ids": list(step["prompt_ids"]),
                "completion_ids": list(step["sampled_ids"]),
                "is_truncated": step["cut"],
            },
        }
        for step in asked.question["trajectory"]
    ]
    request = [typed(types, message) for message in asked.question["messages"]]
    prompt, _ = await client.to_native_prompt(request)
    found: list[int] | None = await client.get_prompt_ids(
        {"trajectory": steps, "model": "toy"}, prompt, asked.tools
    )
    return found


def _read(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or ()
    ]
    kept = {name: value for name, value in message.items() if value is not None and name != "tool_calls"}
    return {**kept, "tool_calls": calls} if calls else kept
