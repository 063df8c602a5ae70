"""The canonical form of a message: its identity, whatever way a client serialized it.

Serializers drop None, add empty lists and re-space the JSON of arguments. The canonical form removes exactly
these differences. It is used to compare messages and is never rendered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import attrs

from ..message import MAX_DEPTH, Message, copied, is_media
from .media import medium_of

Value: TypeAlias = Any
"""A hashable form of JSON data: True differs from 1, 1 equals 1.0, the order of keys is ignored."""

REASONING = ("reasoning", "reasoning_content")
"""The two names that servers use for a model's reasoning."""
IDENTITY = ("role", "content", *REASONING, "tool_calls", "tool_call_id", "name")
"""The keys that make up a message's identity; other keys are ignored, and so is an assistant's name."""
TEXT = ("type", "text")
"""The keys of a text part."""
WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff"
"""What client programs trim: white space of Python, of Unicode, and JavaScript's byte order mark."""


@attrs.frozen
class CanonicalCall:
    """A tool call's identity.

    Attributes:
        id: As it was passed.
        name: Of the tool; for a call without one, all else that it holds.
        arguments: By value if they are one JSON object, else as they are.
    """

    id: Value
    name: Value
    arguments: Value


@attrs.frozen
class Canonical:
    """A message's identity: two messages are the same if their canonical forms are equal.

    Attributes:
        role: As it was passed.
        content: A string, a tuple of parts, or None; an assistant's empty content, `[]` too, is None.
        reasoning: The reasoning under either name, or in the content; all values if they differ.
        tool_calls: One `CanonicalCall` per call, in order.
        tool_call_id: Of a tool message, the call that it answers.
        name: The author's name, or the tool's; None of an assistant, whose name clients add.
    """

    role: str
    content: Value
    reasoning: Value
    tool_calls: tuple[CanonicalCall, ...]
    tool_call_id: Value
    name: Value


def normalize(message: Message | Canonical) -> Canonical:
    """Return the canonical form of `message`; a `Canonical` is returned as it is.

    >>> ours = {"role": "assistant", "content": None, "tool_calls": [
    ...     {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1.0}'}}]}
    >>> theirs = {"role": "assistant", "tool_calls": [
    ...     {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    >>> normalize(ours) == normalize(theirs)
    True
    """
    return message if isinstance(message, Canonical) else normal_copy(copied([message], "message")[0])


def normal_copy(message: Mapping[str, Any]) -> Canonical:
    """Return the canonical form of `message`, which must be a private copy."""
    assistant, (said, thinking) = message["role"] == "assistant", said_and_thought(message)
    return Canonical(
        role=message["role"],
        content=_content(said, assistant=assistant),
        reasoning=_reasoning(message, thinking),
        tool_calls=tuple(map(_call, calls_in(message))),
        tool_call_id=value_of(message.get("tool_call_id")),
        # LangChain's agents write theirs, "model" by default, on every turn that they send back.
        name=None if assistant else value_of(message.get("name")),
    )


def trimmed(text: Value) -> Value:
    r"""Return `text` without the white space around it, None if nothing is left; what is no text unchanged.

    >>> trimmed(" a b\n"), trimmed(" \n"), trimmed(("parts",))
    ('a b', None, ('parts',))
    """
    return (text.strip(WHITE_SPACE) or None) if isinstance(text, str) else text


def _content(content: Any, *, assistant: bool) -> Value:
    text = sole_text(content)
    if assistant and text in (None, "", []):
        return None
    if isinstance(text, list):
        return ("parts", *map(_part, text))
    return value_of(text)


def sole_text(content: Any) -> Any:
    """Return the string if `content` is a single text part, else `content` as it is."""
    alone = isinstance(content, list) and len(content) == 1 and is_text(content[0])
    return content[0]["text"] if alone else content


def is_text(part: Any) -> bool:
    """Return whether `part` of a content is a text. OpenAI Agents JS puts all keys of the message in it."""
    named = isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    return named and not is_media(part)


def other_keys(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `message` has that is no part of its identity; `content` is what text parts have so.

    >>> other_keys({"role": "assistant", "content": "a", "name": "model", "refusal": "no"})
    {'name': 'model', 'refusal': 'no'}
    """
    content = message.get("content")
    parts = filter(is_text, content) if isinstance(content, list) else ()
    beside = [
        {key: one for key, one in part.items() if key not in TEXT and one is not None} for part in parts
    ]
    named = message["role"] == "assistant" and message.get("name") is not None
    found = {key: one for key, one in message.items() if key not in IDENTITY or (named and key == "name")}
    return {**found, "content": beside} if any(beside) else found


def _part(part: Any) -> Value:
    """Return a content part: a text by its text, a medium of which the identity is known by that."""
    if is_text(part):
        return value_of({"type": "text", "text": part["text"]})
    medium = medium_of(part) if is_media(part) else None
    if medium is not None and medium.identity is not None:
        details = ((name, value_of(value)) for name, value in medium.details)
        return ("medium", medium.modality, medium.identity, *details)
    return value_of(
        {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else part
    )


def _reasoning(message: Mapping[str, Any], thinking: Mapping[int, Any]) -> Value:
    """Return the reasoning under either of its names, or in the content; all values if they differ."""
    places = (*map(message.get, REASONING), [*thinking.values()])
    values = list(dict.fromkeys(value_of(one) for one in map(as_text, places) if one not in (None, "")))
    return ("several", *values) if len(values) > 1 else values[0] if values else None


def as_text(reasoning: Any) -> Any:
    """Return `reasoning` that is a list of texts, or of parts with texts, as one text; other as it is.

    >>> as_text(["a", {"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}])
    'ab'
    """
    texts: list[Any] = list(map(_thought, reasoning)) if isinstance(reasoning, list) else [None]
    return "".join(texts) if all(isinstance(text, str) for text in texts) else reasoning


def _thought(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    return as_text(part.get(kind)) if kind in ("text", "thinking") else part


def said_and_thought(message: Mapping[str, Any]) -> tuple[Any, dict[int, Any]]:
    """Return the content of `message` without its reasoning, and the parts that are reasoning by places.

    Mistral's API has an assistant's reasoning in `thinking` parts.
    """
    content = message.get("content")
    if message["role"] != "assistant" or not isinstance(content, list):
        return content, {}
    parts = dict(enumerate(content))
    thinking = {place: part for place, part in parts.items() if _is_thinking(part)}
    return [parts[place] for place in parts if place not in thinking], thinking


def _is_thinking(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking" and isinstance(_thought(part), str)


def calls_in(message: Mapping[str, Any]) -> list[Any]:
    """Return the tool calls of `message` as a list; a client may have sent a single object."""
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else [calls] if calls else []


def function_of(call: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the name and arguments of `call`: its `function`, or the call itself."""
    function = call.get("function")
    return function if isinstance(function, dict) else call


def call_objects(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of `message` that are objects."""
    return [call for call in calls_in(message) if isinstance(call, dict)]


def _call(call: Any) -> CanonicalCall:
    if not isinstance(call, dict):
        return CanonicalCall(None, ("odd", value_of(call)), None)
    function = function_of(call)
    if "name" in function:
        name, arguments = value_of(function["name"]), _arguments(function.get("arguments"))
        return CanonicalCall(value_of(call.get("id")), name, arguments)
    rest = {key: value for key, value in call.items() if key not in ("id", "index") and value is not None}
    return CanonicalCall(value_of(call.get("id")), ("odd", value_of(rest)), None)


def _arguments(arguments: Any) -> Value:
    """Return arguments by value if they are one JSON object, else as they are.

    They are what readers of JSON have in hand: numbers with a point or an exponent are doubles, and of equal
    keys the last one counts. Text is no such object with NaN or an infinity, or nested deeper than a message.
    """
    if arguments in (None, ""):
        return value_of({})
    try:
        parsed = _parsed(arguments) if isinstance(arguments, str) else arguments
        return value_of(parsed if isinstance(parsed, dict) else arguments)
    except (ValueError, RecursionError):
        return arguments


def _reject(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# JavaScript rounds integers, too; Python does not, and reads no more than 4,300 digits as one.
_parsed = json.JSONDecoder(parse_constant=_reject, parse_int=Decimal).decode


def value_of(value: Any, depth: int = 0) -> Value:
    """Return a hashable form of JSON data; two forms are equal exactly if the data mean the same.

    Raises `ValueError` where `value`, which stands at `depth` in its message, nests too deep.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, float):  # by its shortest decimal: JavaScript clients write 1 for 1.0
        return Decimal(repr(value)) if math.isfinite(value) else ("not finite", repr(value))
    if isinstance(value, int | Decimal):
        return Decimal(value)
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return ("object", *((key, value_of(value[key], depth + 1)) for key in sorted(value)))
    return ("array", *(value_of(item, depth + 1) for item in value))


def rounded(value: Value) -> Value:
    """Return the form `value` with all numbers as doubles, as JavaScript reads them.

    >>> rounded(value_of([1234567890123456789, True]))
    ('array', Decimal('1.2345678901234568E+18'), ('truth', True))
    """
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    return value_of(float(value)) if isinstance(value, Decimal) else value


def without_nulls(value: Value) -> Value:
    """Return the form `value` without the keys of objects that have null.

    >>> without_nulls(value_of({"a": None, "b": [None, {"c": None}]}))
    ('object', ('b', ('array', None, ('object',))))
    """
    if not isinstance(value, tuple):
        return value
    if value[:1] != ("object",):
        return tuple(map(without_nulls, value))
    return ("object", *((key, without_nulls(item)) for key, item in value[1:] if item is not None))


def nulls(value: Value, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the form `value`, at `path`, has null, as the keys and positions that lead there.

    >>> list(nulls(value_of({"a": None, "b": {"c": None}})))
    [('a',), ('b', 'c')]
    """
    if value is None:
        yield path
    elif isinstance(value, tuple):
        for key, item in value[1:] if value[:1] == ("object",) else enumerate(value):
            yield from nulls(item, (*path, key))
