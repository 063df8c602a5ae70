"""The messages after the matched step, cleaned so that a template does not drop what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from ..message import Message, copied
from .canonical import sole_text

Plain = dict[str, Any]


def clean(messages: Sequence[Message]) -> tuple[Plain, ...]:
    """Return copies in which a lone text part is its string; several parts stay, since servers differ.

    >>> clean([{"role": "tool", "content": [{"type": "text", "text": "7"}]}])
    ({'role': 'tool', 'content': '7'},)
    """
    return flattened(copied(messages, "environment"))


def flattened(messages: Iterable[Plain]) -> tuple[Plain, ...]:
    """Return the same of messages that are private copies already."""
    return tuple(map(_flat, messages))


def _flat(message: Plain) -> Plain:
    content = message.get("content")
    text = sole_text(content)
    return message if text is content else {**message, "content": text}


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


def says(messages: Sequence[Message], word: str) -> bool:
    """Tell whether a word of plain letters stands anywhere in messages, in whatever case and at any depth.

    Templates may change the case.

    >>> says([{"role": "user", "content": [{"type": "text", "text": "a ZEPHYR"}]}], "Zephyr")
    True
    """
    sought = word.casefold()
    told = chain.from_iterable(chain(message, message.values()) for message in messages)
    return any(sought in _letters(one).casefold() for one in told)


def _letters(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)  # which writes letters as they are


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
