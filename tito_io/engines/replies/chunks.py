"""Streams in the OpenAI manner, put together: what the chunks amount to is what would have come in one piece.

Nothing is checked here. The assembled body goes through the same reader as one that came whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

JOINED = frozenset(("content", "reasoning", "reasoning_content", "refusal", "text", "arguments"))
"""Texts that come in pieces. Other values are whole, and a later one replaces an earlier one."""
ONCE = frozenset(("prompt_token_ids", "prompt_logprobs"))
"""Lists that come whole, perhaps again with every choice."""


@attrs.define
class Assembly:
    """The body that a stream of chat or completion chunks amounts to.

    >>> made = Assembly()
    >>> made.add({"id": "a", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "he"}}]})
    >>> made.add({"id": "a", "choices": [{"index": 0, "delta": {"content": "y"}, "token_ids": [7]}]})
    >>> made.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "token_ids": [8]}]})
    >>> made.body()["choices"][0]["message"], made.body()["choices"][0]["token_ids"]
    ({'role': 'assistant', 'content': 'hey'}, [7, 8])
    """

    top: dict[str, Any] = attrs.field(factory=dict)
    """What stands beside the choices."""
    choices: dict[int, dict[str, Any]] = attrs.field(factory=dict)

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Take in a chunk."""
        _join(self.top, {name: value for name, value in chunk.items() if name != "choices"})
        for choice in chunk.get("choices") or ():
            said = {("message" if name == "delta" else name): value for name, value in choice.items()}
            _join(self.choices.setdefault(choice.get("index", 0), {}), said)

    def body(self) -> dict[str, Any]:
        """Return what the chunks so far amount to."""
        return {**self.top, "choices": [_finished(self.choices[index]) for index in sorted(self.choices)]}


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    """Return a choice without what only its pieces needed: the place of a tool call among the others."""
    message = choice.get("message")
    if not isinstance(message, dict) or not message.get("tool_calls"):
        return choice
    calls = message["tool_calls"]
    plain = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    return {**choice, "message": {**message, "tool_calls": plain}}


def _join(whole: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Add a piece of an object to the object."""
    for name, value in piece.items():
        whole[name] = _joined(name, whole.get(name), value)


def _joined(name: str, old: Any, new: Any) -> Any:
    if new is None:
        return old
    if name == "tool_calls":
        return _calls(old or [], new)
    if isinstance(new, dict):
        joined = dict(old or {})
        _join(joined, new)
        return joined
    if isinstance(new, list):
        return new if name in ONCE or not old else _extended(old, new)
    return (old or "") + new if name in JOINED else new


def _extended(old: list[Any], new: list[Any]) -> list[Any]:
    """Add to a list in place: a long stream must not copy it again with every chunk."""
    old.extend(new)
    return old


def _calls(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add pieces of tool calls, each to the call of its index."""
    calls = {call.get("index", place): dict(call) for place, call in enumerate(old)}
    for piece in new:
        _join(calls.setdefault(piece.get("index", 0), {}), piece)
    return [calls[index] for index in sorted(calls)]
