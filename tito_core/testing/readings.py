"""Ways to present the messages of a conversation to a chat template without a loss.

Written apart from the kernel, so that tests can compare the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs

from ..message import Message


def unwrapped(value: Any) -> Any:
    """Return the JSON data in a dict, a mapping, a pydantic or an attrs object, at any depth."""
    if hasattr(value, "model_dump"):
        return unwrapped(value.model_dump())
    if attrs.has(type(value)):
        return unwrapped(attrs.asdict(value, recurse=False))
    if isinstance(value, Mapping):
        return {key: unwrapped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unwrapped(item) for item in value]
    return value


def lone_text(content: Any) -> Any:
    """Return the text of a lone text part."""
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text":
        return content[0]["text"]
    return content


class NotAnObject(Exception):  # noqa: N818  # no error: the text is compared as it stands
    """Argument text that is not one JSON object."""


def no_constant(name: str) -> Any:
    """NaN and the infinities are not JSON."""
    raise NotAnObject(name)


def object_in(arguments: Any) -> dict[str, Any]:
    """Return the object that arguments are or spell, as readers of JSON have it, with decimals."""
    if isinstance(arguments, dict):
        return arguments
    if arguments == "":
        return {}
    try:
        found = json.loads(arguments, parse_constant=no_constant, parse_int=Decimal)
    except (ValueError, RecursionError) as error:
        raise NotAnObject from error
    if not isinstance(found, dict):
        raise NotAnObject
    return found


def readings(messages: Sequence[Any]) -> Iterator[list[list[Message]]]:
    """Yield ways to present the real conversation to a template, the most faithful ones first.

    A group is only looked at where every earlier one loses something: several parts become one text only
    where the template has no parts.
    """
    real = [unwrapped(message) for message in messages]
    for join in (None, "", "\n"):
        yield [
            [presented(message, join, arguments) for message in real]
            for arguments in (as_it_is, as_object, as_text)
        ]
    yield [
        [in_parts(presented(message, None, arguments)) for message in real]
        for arguments in (as_it_is, as_object, as_text)
    ]


def in_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its text as a list of one part."""
    text = message.get("content")
    return message | {"content": [{"type": "text", "text": text}]} if isinstance(text, str) else message


def presented(message: dict[str, Any], join: str | None, arguments: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a message with a lone part (or all, joined) as text, and its arguments in one form."""
    shown = message | {"content": lone_text(message.get("content"))}
    if join is not None and isinstance(shown["content"], list):
        shown["content"] = join.join(part.get("text", "") for part in shown["content"])
    if message.get("tool_calls"):
        shown["tool_calls"] = [
            call
            | {"function": call["function"] | {"arguments": arguments(call["function"].get("arguments"))}}
            for call in message["tool_calls"]
        ]
    return shown


def as_it_is(arguments: Any) -> Any:
    """Return arguments as they came."""
    return arguments


def as_object(arguments: Any) -> Any:
    """Return arguments as an object where they spell one."""
    if not isinstance(arguments, str):
        return arguments
    try:
        object_in(arguments)
        return json.loads(arguments or "{}")
    except NotAnObject:
        return arguments


def as_text(arguments: Any) -> Any:
    """Return arguments as JSON text."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
