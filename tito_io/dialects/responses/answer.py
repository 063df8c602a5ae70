"""Answers of OpenAI's Responses."""

from __future__ import annotations

from typing import Any

from tito_io.dialects.message_parts import Spoken, ToolCall
from tito_io.dialects.protocol import ParsedRequest, TurnAnswer
from tito_io.engines.protocol import Usage

from . import reasoning as thought

INCOMPLETE = {"reason": "max_output_tokens"}
SEALED = "reasoning.encrypted_content"
ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "top_p",
    "truncation",
    "user",
)
"""What a response repeats of its request."""


def whole(asked: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of an answer."""
    cut = answer.choices[0].finish_reason == "length"
    return {
        **head(asked, answer.id, answer.created, answer.model),
        "status": status(answer),
        "incomplete_details": INCOMPLETE if cut else None,
        "output": output(asked, answer),
        "usage": usage(answer.usage),
    }


def status(answer: TurnAnswer) -> str:
    """Return whether the turn came to its end."""
    return "incomplete" if answer.choices[0].finish_reason == "length" else "completed"


def head(asked: ParsedRequest, identifier: str, created: int, model: str) -> dict[str, Any]:
    """Return a response before anything is said."""
    body = asked.body
    return {
        **{name: body.get(name) for name in ECHOED},
        "id": identifier,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "metadata": dict(asked.metadata),
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "store": asked.store,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "usage": None,
    }


def output(asked: ParsedRequest, answer: TurnAnswer) -> list[dict[str, Any]]:
    """Return the items of a turn; one of nothing at all is a message of nothing.

    Where the turn was cut short it is the last item that is not whole.
    """
    spoken = Spoken.of(answer.choices[0].message)
    silent = not (spoken.content or spoken.calls or spoken.reasoning)
    items = [
        *([reasoning(asked, answer.id, spoken.reasoning)] if spoken.reasoning else []),
        *([message(answer.id, spoken.content)] if spoken.content or silent else []),
        *(call(answer.id, place, one) for place, one in enumerate(spoken.calls)),
    ]
    return [*items[:-1], {**items[-1], "status": status(answer)}]


def reasoning(asked: ParsedRequest, identifier: str, text: str) -> dict[str, Any]:
    """Return the item of a thought."""
    sealed = SEALED in asked.body.get("include", ())
    return thought.item(f"rs_{identifier}", text, sealed=sealed)


def message(identifier: str, text: str) -> dict[str, Any]:
    """Return the item of what was said."""
    head = {"id": f"msg_{identifier}", "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": [part(text)]}


def part(text: str) -> dict[str, Any]:
    """Return the part of a text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call(identifier: str, place: int, called: ToolCall) -> dict[str, Any]:
    """Return the item of a call; its arguments are text as sampled."""
    return {
        "id": f"fc_{identifier}_{place}",
        "type": "function_call",
        "call_id": called.id,
        "name": called.name,
        "arguments": called.arguments,
        "status": "completed",
    }


def usage(counted: Usage) -> dict[str, Any]:
    """Return the counts. How many ids were thought is not known, and said to be none."""
    return {
        "input_tokens": counted.prompt_tokens,
        "input_tokens_details": {"cached_tokens": counted.cached_tokens or 0, "cache_write_tokens": 0},
        "output_tokens": counted.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted.prompt_tokens + counted.completion_tokens,
    }
