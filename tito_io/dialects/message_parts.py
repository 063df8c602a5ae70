"""The parts of an assistant message: reasoning, content and tool calls; arguments as text or as an object.

Some APIs have only objects for arguments. Arguments that would not survive as an object are then sent as
their text under the key `RAW`: malformed JSON, a key that stands twice, NaN, numbers and characters that JSON
readers change. The tool sees that the call is malformed, and the sampled text comes back unchanged with the
next request.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import Any

import attrs
import orjson

from tito_core import InputError, Message
from tito_core.normalization.canonical import REASONING, calls_in, function_of, normalize

from .protocol import UntranslatableError

RAW = "tito_raw_arguments"
SEAL = "tito:"
"""Begins a text that clients carry for the gateway, such as reasoning in `encrypted_content`."""
ERROR_PREFIX = "Error: "
"""Stands before what a tool returned that failed: messages have no field for it."""
Content = str | list[dict[str, Any]]


def content_of(parts: list[dict[str, Any]]) -> Content:
    """Return parts as content: no part as the empty string, a lone text part as its string.

    >>> content_of([]), content_of([{"type": "text", "text": "hi"}])
    ('', 'hi')
    """
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts or ""


@attrs.frozen
class ToolCall:
    """A tool call; its arguments are text, exactly as the message has them."""

    id: str
    name: str
    arguments: str

    def chat_form(self) -> dict[str, Any]:
        """Return the call in the form of OpenAI's chat API."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@attrs.frozen
class AssistantParts:
    """The parts of an assistant message; empty where it has none."""

    reasoning: str
    content: str
    calls: tuple[ToolCall, ...]

    @classmethod
    def of(cls, message: Message) -> AssistantParts:
        """Take a message apart; raises `InputError` for one that no engine here gives.

        >>> AssistantParts.of({"role": "assistant", "content": None, "reasoning": "hm"})
        AssistantParts(reasoning='hm', content='', calls=())
        """
        content = message.get("content")
        reasoning = {message[name] for name in REASONING if message.get(name)}
        texts = isinstance(content, str | None) and all(isinstance(one, str) for one in reasoning)
        if not texts or len(reasoning) > 1:
            raise InputError("an engine's message has one content and one reasoning, both of them strings")
        calls = tuple(_call(call, place) for place, call in enumerate(calls_in(message)))
        return cls(next(iter(reasoning), ""), content or "", calls)


def _call(call: dict[str, Any], place: int) -> ToolCall:
    function = function_of(call)
    identifier, name = call.get("id"), function.get("name")
    if not isinstance(identifier, str) or not isinstance(name, str):
        raise InputError(f"an engine's message has a tool call without an id or a name at position {place}")
    arguments = function.get("arguments") or ""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(identifier, name, text)


def arguments_object(text: str) -> dict[str, Any]:
    """Return the arguments of a call as an object.

    >>> arguments_object('{"a": 1}'), arguments_object(""), arguments_object('{"a": ')
    ({'a': 1}, {}, {'tito_raw_arguments': '{"a": '})
    """
    with suppress(TypeError, ValueError, RecursionError):
        values = json.loads(text or "{}")
        if isinstance(values, dict) and RAW not in values:
            # orjson is as strict as clients' readers: NaN, 1e400 and half of a surrogate pair fail or change.
            again = json.dumps(orjson.loads(orjson.dumps(values)))
            if normalize(_message_with(again)) == normalize(_message_with(text)):
                return values
    return {RAW: text}


def arguments_text(values: dict[str, Any], path: str) -> str:
    """Return the text of arguments that a client sends back; `path` is where they stand.

    >>> arguments_text({"a": 1}, "input"), arguments_text({"tito_raw_arguments": "no JSON"}, "input")
    ('{"a": 1}', 'no JSON')
    """
    raw = values.get(RAW)
    if len(values) == 1 and isinstance(raw, str):
        return raw
    try:
        return json.dumps(values, ensure_ascii=False)
    except RecursionError:
        raise UntranslatableError(path, "nests too deep", "flatten it") from None


def seal(text: str) -> str:
    """Return a text for a field that clients send back unread; base64, since there is nothing to hide.

    >>> seal("hm"), unseal(seal("hm")), unseal("gAAA")
    ('tito:aG0=', 'hm', None)
    """
    return SEAL + b64encode(text.encode("utf-8", "surrogatepass")).decode()


def unseal(sealed: str) -> str | None:
    """Return the text of such a field; None for one that was not written here."""
    if not sealed.startswith(SEAL):
        return None
    try:
        return b64decode(sealed.removeprefix(SEAL), validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None


def _message_with(arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [ToolCall("", "", arguments).chat_form()]}
