"""An example conversation and chat template for tests that need any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tito_core import Message, Step, TemplateRefused

OPEN, CLOSE, CALL = 1, 2, 3
ROLES = {"system": 10, "user": 11, "assistant": 12, "tool": 13, "developer": 14}
BASE = 100
"""Each byte of text is one id, from this one on."""


def text(words: str) -> list[int]:
    return [BASE + byte for byte in words.encode()]


def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render as OPEN, role, content, calls, CLOSE."""
    ids: list[int] = []
    for message in messages:
        if message["role"] not in ROLES:
            raise TemplateRefused(f"no role {message['role']}")
        ids += [OPEN, ROLES[message["role"]], *text(str(message.get("content") or ""))]
        for call in message.get("tool_calls") or ():
            ids += [CALL, *text(call["function"]["name"]), *text(str(call["function"]["arguments"]))]
        ids.append(CLOSE)
    return [*ids, OPEN, ROLES["assistant"]] if add_generation_prompt else ids


def user(words: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": words}


def assistant(words: str = "hello") -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def step(
    messages: Sequence[Message] = ({"role": "user", "content": "hi"},),
    words: str = "hello",
    sampled: Sequence[int] = (900, 901, CLOSE),
    **more: Any,
) -> Step:
    """Return a step whose sampled ids are not those that its text would tokenize to."""
    prompt_ids = more.pop("prompt_ids", None) or tokenize(messages, add_generation_prompt=True)
    return Step(
        prompt=messages, completion=[assistant(words)], prompt_ids=prompt_ids, completion_ids=sampled, **more
    )


def prompt(after: Step, words: str = "more") -> list[Message]:
    return [*after.messages, user(words)]


def cut(ids: list[int], since: str | None) -> list[int]:
    """Return the ids from a text on; all of them where it occurs not exactly once."""
    sought = text(since or "")
    starts = [i for i in range(len(ids)) if ids[i : i + len(sought)] == sought]
    return ids[starts[0] :] if since is not None and len(starts) == 1 else ids
