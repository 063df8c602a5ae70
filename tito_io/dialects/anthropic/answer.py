"""Answers of Anthropic's Messages."""

from __future__ import annotations

from typing import Any

from tito_io.dialects.arguments import as_object
from tito_io.dialects.message_parts import Spoken, ToolCall
from tito_io.dialects.protocol import ParsedRequest, SampledMessage, TurnAnswer
from tito_io.engines.protocol import Usage


def whole(asked: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of an answer."""
    said = answer.choices[0]
    return {
        **head(answer.id, answer.model),
        "content": _blocks(Spoken.of(said.message), answer.id),
        **end(asked, said),
        "usage": usage(answer.usage),
    }


def head(identifier: str, model: str) -> dict[str, Any]:
    """Return what is known before anything is said."""
    return {"id": identifier, "type": "message", "role": "assistant", "model": model}


def _blocks(spoken: Spoken, identifier: str) -> list[dict[str, Any]]:
    thought = {"type": "thinking", "thinking": spoken.reasoning, "signature": identifier}
    text = {"type": "text", "text": spoken.content}
    return [
        *([thought] if spoken.reasoning else []),
        *([text] if spoken.content else []),
        *({**tool_use(call), "input": as_object(call.arguments)} for call in spoken.calls),
    ]


def tool_use(call: ToolCall) -> dict[str, Any]:
    """Return the block of a call, its input still empty."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


def end(asked: ParsedRequest, said: SampledMessage) -> dict[str, Any]:
    """Return why a turn ended: a string that the client named, or what the engine says."""
    named = asked.sampling.get("stop") or ()
    sequence = said.stop_reason if isinstance(said.stop_reason, str) and said.stop_reason in named else None
    return {"stop_reason": _reason(said, sequence), "stop_sequence": sequence}


def _reason(said: SampledMessage, sequence: str | None) -> str:
    if said.finish_reason == "length":
        return "max_tokens"
    if said.message.get("tool_calls"):
        return "tool_use"
    return "end_turn" if sequence is None else "stop_sequence"


def usage(counted: Usage) -> dict[str, Any]:
    """Return the counts: what the prefix cache had is no part of the input there.

    >>> usage(Usage(prompt_tokens=10, completion_tokens=2, cached_tokens=8))["input_tokens"]
    2
    """
    cached = counted.cached_tokens or 0
    return {
        "input_tokens": counted.prompt_tokens - cached,
        "output_tokens": counted.completion_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
    }
