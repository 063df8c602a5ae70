"""Content blocks of Anthropic's Messages, as content of messages in the manner of OpenAI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tito_io.dialects.fields import demanded, known, objects, only, taken
from tito_io.dialects.protocol import UntranslatableError

ERROR_MARK = "Error: "
"""What stands in front of a tool's result that is an error."""
BILLING = "x-anthropic-billing-header:"
"""How clients begin a block of the system text that is meant for Anthropic's servers."""
KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset(("type", "text", "cache_control")),
    "image": frozenset(("type", "source", "cache_control")),
    "thinking": frozenset(("type", "thinking", "signature")),
    "tool_use": frozenset(("type", "id", "name", "input", "caller", "cache_control")),
    "tool_result": frozenset(("type", "tool_use_id", "content", "is_error", "cache_control")),
}
"""The blocks that can be translated, and what they may hold."""


def block_type(block: Mapping[str, Any], field: str, allowed: tuple[str, ...]) -> str:
    """Return a block's type; raises for a block that has no place there or holds what nobody knows."""
    kind = demanded(block, "type", str, f"{field}.")
    if kind not in allowed:
        raise UntranslatableError(
            field, f"a block of type {kind!r:.60} cannot be translated here", f"use {', '.join(allowed)}"
        )
    known(block, KEYS[kind], f"{field}.")
    only(block, "caller", ({"type": "direct"},), "tools are called by the model alone", f"{field}.")
    return kind


def content(given: Any, field: str) -> str | list[dict[str, Any]]:
    """Return content of a user or a tool: a string, or parts where there is more than one text.

    >>> content([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}], "content")
    'hi'
    """
    if isinstance(given, str):
        return given
    blocks = objects(given, field)
    return joined([_part(block, f"{field}[{place}]") for place, block in enumerate(blocks)])


def joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return parts as content: a lone text as its string, nothing as the empty one."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return str(parts[0]["text"])
    return parts


def text_part(block: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the part of a text block."""
    return {"type": "text", "text": demanded(block, "text", str, f"{field}.")}


def _part(block: Mapping[str, Any], field: str) -> dict[str, Any]:
    if block_type(block, field, ("text", "image")) == "text":
        return text_part(block, field)
    return {
        "type": "image_url",
        "image_url": {"url": _url(demanded(block, "source", dict, f"{field}."), field)},
    }


def _url(source: Mapping[str, Any], field: str) -> str:
    within = f"{field}.source."
    only(source, "type", ("base64", "url"), "send the image itself, or its address", within)
    if source.get("type") == "url":
        return demanded(source, "url", str, within)
    kind, data = demanded(source, "media_type", str, within), demanded(source, "data", str, within)
    return f"data:{kind};base64,{data}"


def system_text(given: Any, field: str) -> str | list[dict[str, Any]] | None:
    """Return the content of a system message, None where there is none.

    >>> system_text([{"type": "text", "text": "x-anthropic-billing-header: cch=1"}], "system")
    """
    if given is None or isinstance(given, str):
        return given or None
    parts = []
    for place, block in enumerate(objects(given, field)):
        block_type(block, f"{field}[{place}]", ("text",))
        parts.append(text_part(block, f"{field}[{place}]"))
    return joined([part for part in parts if not part["text"].startswith(BILLING)]) or None


def tool_result(block: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the message of a tool's result.

    >>> tool_result({"tool_use_id": "a", "content": "gone", "is_error": True}, "messages[1].content[0]")
    {'role': 'tool', 'tool_call_id': 'a', 'content': 'Error: gone'}
    """
    given = block.get("content")
    found = content([] if given is None else given, f"{field}.content")
    if taken(block, "is_error", bool, f"{field}."):
        mark = [{"type": "text", "text": ERROR_MARK}]
        found = ERROR_MARK + found if isinstance(found, str) else mark + found
    return {
        "role": "tool",
        "tool_call_id": demanded(block, "tool_use_id", str, f"{field}."),
        "content": found,
    }
