"""The messages after the matched step, cleaned so that a template does not drop what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


def says(value: object, text: str) -> bool:
    """Tell whether a text stands anywhere in messages, in whatever case: templates may change it.

    >>> says([{"role": "user", "content": [{"type": "text", "text": "a ZEPHYR"}]}], "Zephyr")
    True
    """
    if isinstance(value, dict):
        return any(says(item, text) for pair in value.items() for item in pair)
    if isinstance(value, list | tuple):
        return any(says(item, text) for item in value)
    return isinstance(value, str) and text.casefold() in value.casefold()


def lengthened(environment: Sequence[Plain], positions: Iterable[int]) -> tuple[Plain, ...]:
    """Return the environment with more text in some messages.

    >>> lengthened([{"role": "user", "content": "a"}], [0])
    ({'role': 'user', 'content': 'a more'},)
    """
    chosen = frozenset(positions)
    return tuple(
        {**message, "content": _more(message.get("content"))} if i in chosen else message
        for i, message in enumerate(environment)
    )


def _more(content: Any) -> Any:
    if isinstance(content, list):
        return [*content, {"type": "text", "text": " more"}]
    return f"{content or ''} more" if isinstance(content, str | None) else content
