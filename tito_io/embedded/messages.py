"""Messages from the wire as the template gets them, changed in the ways the engine changes them.

Text parts become one text, argument strings become objects, a thought gets both of its names, unknown keys
are dropped. A client that renders the same messages itself has to do all of this, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import Refused, bad, invalid


def readied(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages for the template; at least one is needed."""
    if not messages:
        raise Refused("Cannot apply chat template to an empty conversation. Provide at least one message.")
    return [_readied(message, f"body.messages.{place}") for place, message in enumerate(messages)]


def _readied(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise invalid("missing", f"{place}.role", "Field required", dict(message))
    known = {
        "role": "system" if role == "developer" else role,
        "content": _text(message.get("content", ""), place, optional=role == "assistant"),
    }
    if role == "assistant":
        known |= _thought(message) | _calls(message, place)
    if role == "tool" and "tool_call_id" in message:
        known["tool_call_id"] = message["tool_call_id"]
    return known | ({"name": message["name"]} if isinstance(message.get("name"), str) else {})


def _text(content: Any, place: str, *, optional: bool) -> str:
    """Return the text of a content, parts on lines of their own; only an assistant's may be null."""
    if isinstance(content, str) or (content is None and optional):
        return content or ""
    if not isinstance(content, list):
        raise invalid("string_type", f"{place}.content", "Input should be a valid string", content)
    return "\n".join(_part(part, f"{place}.content.{at}") for at, part in enumerate(content))


def _part(part: Any, place: str) -> str:
    if not isinstance(part, dict):
        raise invalid("dict_type", place, "Input should be a valid dictionary", part)
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text", "refusal"):
        return str(part.get("refusal" if kind == "refusal" else "text") or "")
    raise Refused(f"This model takes text alone; a content part of type {kind!r} cannot be answered.")


def _thought(message: Mapping[str, Any]) -> dict[str, Any]:
    thought = message.get("reasoning")
    return {} if thought is None else {"reasoning": thought, "reasoning_content": thought}


def _calls(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise invalid("list_type", f"{place}.tool_calls", "Input should be a valid list", calls)
    found = [_call(call, f"{place}.tool_calls.{at}") for at, call in enumerate(calls)]
    return {"tool_calls": found} if found else {}


def _call(call: Any, place: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise bad("chat completions only support assistant tool_calls of type 'function'.", "tool_calls")
    written = function.get("arguments")
    if not isinstance(written, str):
        raise invalid("string_type", f"{place}.arguments", "Input should be a valid string", written)
    return {**call, "function": {**function, "arguments": _arguments(written)}}


def _arguments(written: str) -> dict[str, Any]:
    """Return arguments as an object; what is broken or of another kind becomes an empty one."""
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
