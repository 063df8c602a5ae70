"""Clean environment messages before rendering, so that a template does not drop their text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from ..message import Message, copied
from .canonical import calls_in, function_of, sole_text
from .media import asked

Plain = dict[str, Any]


def clean(messages: Sequence[Message]) -> tuple[Plain, ...]:
    """Return copies of `messages` in which a single text part is its string, and media are bare kinds.

    Several parts stay as they are, since servers join them differently.

    >>> clean([{"role": "tool", "content": [{"type": "text", "text": "7"}]}])
    ({'role': 'tool', 'content': '7'},)
    """
    return flattened(copied(messages, "environment"))


def flattened(messages: Iterable[Plain]) -> tuple[Plain, ...]:
    """Return what `clean` does, for messages that are private copies already."""
    texts = ((message, sole_text(message.get("content"))) for message in map(asked, messages))
    return tuple(
        message if text is message.get("content") else {**message, "content": text} for message, text in texts
    )


def says(messages: Sequence[Message], word: str) -> bool:
    """Return whether a word of plain letters occurs anywhere in `messages`, at any depth and in any case.

    Case is ignored because templates may change it.

    >>> says([{"role": "user", "content": [{"type": "text", "text": "a ZEPHYR"}]}], "Zephyr")
    True
    """
    sought = word.casefold()
    values = chain.from_iterable(chain(message, message.values()) for message in messages)
    try:  # repr writes letters as they are, at any depth
        return any(sought in (one if isinstance(one, str) else repr(one)).casefold() for one in values)
    except ValueError:  # an integer with more digits than Python writes: what stands beside it is not known
        return True


def lengthened(
    environment: Sequence[Plain], positions: Iterable[int], *, graded: bool = False
) -> tuple[Plain, ...]:
    """Return the environment with more text in the messages at `positions`.

    With `graded`, the first of them gets one more word, the second two, so that each is known by its length.
    They go before the marks at the end of a text, which often merge with what a template writes after it.

    >>> lengthened([{"role": "user", "content": "a"}, {"role": "user", "content": "It is 7."}], [0, 1])
    ({'role': 'user', 'content': 'a more'}, {'role': 'user', 'content': 'It is 7 more.'})
    """
    words = {place: 1 + number * graded for number, place in enumerate(positions)}
    return tuple(
        _longer(message, words[i]) if i in words else message for i, message in enumerate(environment)
    )


def _longer(message: Plain, words: int) -> Plain:
    """Return a message with more text. An empty text beside calls stays empty: it may not be written."""
    if calls_in(message) and not message.get("content"):
        return {**message, "tool_calls": [_longer_name(call, words) for call in calls_in(message)]}
    return {**message, "content": _more(message.get("content"), " more" * words)}


def _longer_name(call: Any, words: int) -> Any:
    if not isinstance(call, dict):
        return call
    function = {**function_of(call), "name": f"{function_of(call).get('name')}{'_and_more' * words}"}
    return function if function_of(call) is call else {**call, "function": function}


def _more(content: Any, text: str) -> Any:
    if isinstance(content, list):
        return [*content, {"type": "text", "text": text}]
    if not isinstance(content, str | None):
        return content
    words = content or ""
    place = _end_of_words(words)
    return f"{words[:place]}{text}{words[place:]}"


def _end_of_words(text: str) -> int:
    """Return the place after the last letter or digit that is no part of a tag; the end without one.

    A text may spell a special token, such as `<think>`.
    """
    inside = False
    for place in range(len(text), 0, -1):
        mark = text[place - 1]
        if mark in "<>":
            inside = mark == ">"
        elif mark.isalnum() and not inside:
            return place
    return len(text)
