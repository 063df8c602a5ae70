"""The token client of `verifiers` 0.1.12, the last release that has one.

Its two questions to the server's `/tokenize` are answered from what was asked before, so that only its own
work is timed. The steps share their messages and ids, which the client reads and does not change.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.clock import Prepare, Work
from benchmarks.peers.given import Given, serve

NAME = "verifiers 0.1.12: token client"


def client(given: Given) -> Work:
    """Return the client's search for the ids, a coroutine that never waits."""
    base: Any = import_module("verifiers.clients").OpenAIChatCompletionsTokenClient

    class Answered(base):  # type: ignore[misc]  # a class of a package that is not there when this is checked
        """The client, with its questions answered."""

        async def tokenize(self, messages: list[Any], **_: object) -> list[int]:
            return given.answers[len(messages) == 1]

    asking = Answered(object())
    state = _state(given)
    prompt, _ = _finished(asking.to_native_prompt(_typed(given.prompt)))
    return lambda: _finished(asking.get_prompt_ids(state, prompt, None))


def _finished(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the client waited for something")


def _typed(messages: list[dict[str, Any]]) -> list[Any]:
    types = import_module("verifiers.types")
    kinds = {"user": types.UserMessage, "assistant": types.AssistantMessage}
    return [kinds[message["role"]](content=message["content"]) for message in messages]


def _state(given: Given) -> dict[str, Any]:
    """Return the trajectory: a step for each turn, holding the messages as the client's own types."""
    messages = _typed(given.messages)
    tokens = {"prompt_ids": given.prompt_ids, "completion_ids": given.completion_ids, "is_truncated": False}
    steps = [
        {"prompt": messages[:place], "completion": messages[place : place + 1], "tokens": tokens}
        for place in range(1, len(messages), 2)
    ]
    return {"trajectory": steps, "model": "m"}


def programs(given: Given) -> dict[str, Prepare]:
    """Return the program."""
    return {NAME: partial(client, given)}


if __name__ == "__main__":
    serve(programs, [f"verifiers {version('verifiers')}"])
