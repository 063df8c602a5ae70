"""Make sample turns of a kind and sample environments of a shape, to certify a case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..normalization.canonical import REASONING
from .case import MANY, TurnKind
from .turn_form import calls_of

Plain = dict[str, Any]
NAMED = "named"
"""The mark of a tool result with the tool's name."""


def sample_turn(kind: TurnKind, names: Sequence[str]) -> Plain:
    """Return a turn of a kind; its calls have these names, and ids made of them.

    >>> sample_turn(TurnKind(before="user", reasoning=False, calls=0, content="text"), [])
    {'role': 'assistant', 'content': 'Seven.'}
    """
    turn: Plain = {"role": "assistant"}
    if kind.content != "absent":
        turn["content"] = {"text": "Seven.", "empty": "", "null": None}[kind.content]
    if kind.reasoning:
        turn |= dict.fromkeys(REASONING, "Add them.")
    if kind.calls:
        turn["tool_calls"] = [_call(name, f"call{place}{name:x<4.4}") for place, name in enumerate(names)]
    return turn


def _call(name: str, key: str) -> Plain:
    return {"id": key, "type": "function", "function": {"name": name, "arguments": '{"value": "x"}'}}


def sample_environment(shape: Sequence[str], turn: Plain, many: int, words: str) -> tuple[Plain, ...]:
    """Return an environment of a shape that says `words`, each plural of it `many` times.

    >>> [m["content"] for m in sample_environment(["user+"], {"role": "assistant"}, 2, "Well")]
    ['Well 0.', 'Well 1.']
    """
    calls, names = iter(calls_of(turn)), spelled_out(shape, many)
    return tuple(_message(name, calls, f"{words} {place}.") for place, name in enumerate(names))


def spelled_out(shape: Sequence[str], many: int) -> list[str]:
    """Return the shape of each message, where `many` stand for each plural.

    >>> spelled_out(["tool+", "tool:empty"], 2)
    ['tool', 'tool', 'tool:empty']
    """
    return [name.removesuffix(MANY) for name in shape for _ in range(many if name.endswith(MANY) else 1)]


def _message(name: str, calls: Iterator[Plain], text: str) -> Plain:
    role, *marks = name.split(":")
    content = next((mark for mark in marks if mark != NAMED), "text")
    message: Plain = {"role": role, "content": _content(content, text)}
    if role == "tool":
        call = next(calls)
        message["tool_call_id"] = call["id"]
        message |= {"name": call["function"]["name"]} if NAMED in marks else {}
    return message


def _content(name: str, text: str) -> Any:
    """Return a content of a name that says `text`.

    >>> _content("[image.text]", "Well.")
    [{'type': 'image'}, {'type': 'text', 'text': 'Well.'}]
    """
    if name in {"text", "empty"}:
        return text if name == "text" else ""
    kinds = name[1:-1].split(".")
    return [{"type": kind, "text": text} if kind == "text" else {"type": kind} for kind in kinds]
