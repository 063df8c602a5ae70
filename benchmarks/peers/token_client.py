"""The token client of `verifiers` 0.1.12, the last release with a token client.

Its two requests to the server's `/tokenize` get prepared answers, so that only its own work is timed. The
steps share their messages and ids: the client reads them and does not change them.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.clock import Prepare, Work
from benchmarks.peers.history_file import HistoryFile, serve

NAME = "verifiers 0.1.12: token client"


def client(history: HistoryFile) -> Work:
    """Return the client's search for the prompt ids."""
    base: Any = import_module("verifiers.clients").OpenAIChatCompletionsTokenClient

    class AnsweredClient(base):  # type: ignore[misc]  # the package is not installed where types are checked
        """The client with prepared answers of `/tokenize`."""

        async def tokenize(self, messages: list[Any], **_: object) -> list[int]:
            return history.answers[len(messages) == 1]

    token_client = AnsweredClient(object())
    state = _state(history)
    prompt, _ = _finished(token_client.to_native_prompt(_typed(history.prompt)))
    return lambda: _finished(token_client.get_prompt_ids(state, prompt, None))


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


def _state(history: HistoryFile) -> dict[str, Any]:
    """Return the client's state: a step for each turn, with messages of the client's own types."""
    messages = _typed(history.messages)
    tokens = {
        "prompt_ids": history.prompt_ids,
        "completion_ids": history.completion_ids,
        "is_truncated": False,
    }
    steps = [
        {"prompt": messages[:place], "completion": messages[place : place + 1], "tokens": tokens}
        for place in range(1, len(messages), 2)
    ]
    return {"trajectory": steps, "model": "m"}


def programs(history: HistoryFile) -> dict[str, Prepare]:
    """Return the program by its name."""
    return {NAME: partial(client, history)}


if __name__ == "__main__":
    serve(programs, [f"verifiers {version('verifiers')}"])
