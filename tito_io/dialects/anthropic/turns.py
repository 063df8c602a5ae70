"""Messages of Anthropic's API, as messages in the manner of OpenAI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tito_io.dialects.arguments import as_text
from tito_io.dialects.fields import demanded, known, objects, only
from tito_io.dialects.message_parts import ToolCall
from tito_io.dialects.protocol import UntranslatableError

from .blocks import block_type, content, joined, system_text, text_part, tool_result


def messages(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages; one of a user gives several where it holds results of tools."""
    if not given:
        raise UntranslatableError("messages", "is empty", "send at least one")
    found: list[dict[str, Any]] = []
    for place, message in enumerate(given):
        within = f"messages[{place}]."
        only(message, "role", ("user", "assistant", "system"), "use user and assistant", within)
        known(message, ("role", "content"), within)
        role, field = demanded(message, "role", str, within), f"{within}content"
        said = message.get("content")
        if role == "assistant":
            found.append(_assistant(said, field))
        else:
            found += _user(said, field) if role == "user" else _system(said, field)
    return found


def _system(said: Any, field: str) -> list[dict[str, Any]]:
    text = system_text(said, field)
    return [] if text is None else [{"role": "system", "content": text}]


def _user(said: Any, field: str) -> Iterator[dict[str, Any]]:
    """Yield the results of tools, and what the user says after them."""
    if isinstance(said, str):
        yield {"role": "user", "content": said}
        return
    blocks = objects(said, field)
    results = [place for place, block in enumerate(blocks) if block.get("type") == "tool_result"]
    if results != list(range(len(results))):
        raise UntranslatableError(
            f"{field}[{results[-1]}]", "stands behind other content", "send results of tools first"
        )
    for place in results:
        block_type(blocks[place], f"{field}[{place}]", ("tool_result",))
        yield tool_result(blocks[place], f"{field}[{place}]")
    if len(blocks) > len(results) or not results:
        yield {"role": "user", "content": _rest(blocks, len(results), field)}


def _rest(blocks: list[dict[str, Any]], begin: int, field: str) -> Any:
    for place, block in enumerate(blocks[begin:], begin):
        block_type(block, f"{field}[{place}]", ("text", "image", "tool_result"))
    return content(blocks[begin:], field)


def _assistant(said: Any, field: str) -> dict[str, Any]:
    """Return an assistant message: one thought, texts, calls."""
    blocks = [{"type": "text", "text": said}] if isinstance(said, str) else objects(said, field)
    thoughts: list[str] = []
    texts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for place, block in enumerate(blocks):
        where = f"{field}[{place}]"
        kind = block_type(block, where, ("text", "thinking", "tool_use"))
        if kind == "thinking":
            thoughts.append(demanded(block, "thinking", str, f"{where}."))
        elif kind == "tool_use":
            calls.append(_call(block, f"{where}."))
        elif calls:
            raise UntranslatableError(where, "is text behind a call", "messages have text before their calls")
        else:
            texts.append(text_part(block, where))
    if len(thoughts) > 1:
        raise UntranslatableError(field, "has more than one thought", "a message has one: send it by itself")
    return _message(thoughts, texts, calls)


def _message(thoughts: list[str], texts: list[dict[str, Any]], calls: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": joined(texts)}
    if thoughts:
        message["reasoning"] = thoughts[0]
    return {**message, **({"tool_calls": calls} if calls else {})}


def _call(block: Mapping[str, Any], within: str) -> dict[str, Any]:
    identifier, name = demanded(block, "id", str, within), demanded(block, "name", str, within)
    found = demanded(block, "input", dict, within)
    return ToolCall(identifier, name, as_text(found, f"{within}input")).wire()
