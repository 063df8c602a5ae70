"""The messages after the matched step, cleaned so that a template does not drop what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .message import Message, copied
from .normal import sole_text

Plain = dict[str, Any]


def clean(messages: Sequence[Message]) -> tuple[Plain, ...]:
    """Return copies in which a lone text part is its string; several parts stay, since servers differ.

    >>> clean([{"role": "tool", "content": [{"type": "text", "text": "7"}]}])
    ({'role': 'tool', 'content': '7'},)
    """
    return tuple(map(_flat, copied(messages, "environment")))


def _flat(message: Plain) -> Plain:
    text = sole_text(message.get("content"))
    return {**message, "content": text} if isinstance(text, str) else message


def readings(environment: tuple[Plain, ...]) -> Iterator[tuple[Plain, ...]]:
    """Yield the environment, then as a template that knows no `developer` would have it.

    >>> [m["role"] for reading in readings(({"role": "developer", "content": "x"},)) for m in reading]
    ['developer', 'system']
    """
    yield environment
    if any(message["role"] == "developer" for message in environment):
        yield tuple(
            {**message, "role": "system"} if message["role"] == "developer" else message
            for message in environment
        )


def shapes(environment: Sequence[Plain]) -> list[int]:
    """Return the position of one message of each shape: its role, kind of content, and calls.

    >>> shapes([{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}, {"role": "user"}])
    [0, 2]
    """
    found: dict[object, int] = {}
    for position, message in enumerate(environment):
        shape = (message["role"], type(message.get("content")), bool(message.get("tool_calls")))
        found.setdefault(shape, position)
    return list(found.values())


def altered(environment: Sequence[Plain], position: int) -> tuple[Plain, ...]:
    """Return the environment with more text in one message.

    >>> altered([{"role": "user", "content": "a"}], 0)
    ({'role': 'user', 'content': 'a more'},)
    """
    message = environment[position]
    changed = {**message, "content": _more(message.get("content"))}
    return (*environment[:position], changed, *environment[position + 1 :])


def _more(content: Any) -> Any:
    if isinstance(content, list):
        return [*content, {"type": "text", "text": "more"}]
    return f"{content} more" if isinstance(content, str) and content else "more"
