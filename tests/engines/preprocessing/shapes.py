"""Shapes of conversations: what agents and clients send, by what an engine may do to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

Message = dict[str, Any]
CLIENTS = Path(__file__).with_name("client_messages.jsonl")
"""Messages as client programs sent them, with other words; made by running the programs."""

PARAMETERS = {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}
TOOL: Message = {"type": "function", "function": {"name": "f", "description": "d", "parameters": PARAMETERS}}
SYSTEM: Message = {"role": "system", "content": "Be brief."}
DATA_URL = "data:image/png;base64,iVBORw0KGgo="


def text(words: str, **more: Any) -> Message:
    """Return a part of text."""
    return {"type": "text", "text": words, **more}


def user(content: Any = "q") -> Message:
    """Return a user's message."""
    return {"role": "user", "content": content}


def said(content: Any = "a", **more: Any) -> Message:
    """Return an assistant's message."""
    return {"role": "assistant", "content": content, **more}


def called(arguments: Any = '{"k": "v", "n": 1}', call_id: str = "callabc12", **more: Any) -> Message:
    """Return a tool call."""
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


def calling(*calls: Message, **more: Any) -> Message:
    """Return an assistant's message with calls, of which one is enough, and no content."""
    return {"role": "assistant", "tool_calls": list(calls or (called(),)), **more}


def result(content: Any = "r", call_id: str = "callabc12", **more: Any) -> Message:
    """Return a tool result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def asked(*messages: Message) -> list[Message]:
    """Return a conversation after a system text and a question."""
    return [SYSTEM, user(), *messages]


EMPTY = calling(content="")
OTHER = "callxyz98"
TWO_CALLS = calling(called(), called('{"k": "w"}', OTHER), content="")

SHAPES: Mapping[str, list[Message]] = {
    "plain": asked(said(), user("r")),
    "user: one part": [SYSTEM, user([text("one")])],
    "user: two parts": [SYSTEM, user([text("one"), text("two")])],
    "user: an empty part": [SYSTEM, user([text(""), text("two")])],
    "user: no parts": [SYSTEM, user([]), said(), user()],
    "user: empty": [SYSTEM, user(""), said(), user()],
    "user: a cache marker": [SYSTEM, user([text("one", cache_control={"type": "ephemeral"})])],
    "user: a message spread into its part": [
        SYSTEM,
        user([text("one", role="user", tool_calls=None, refusal=None)]),
    ],
    "user: parts of the Responses API": [SYSTEM, user([{"type": "input_text", "text": "one"}, text("two")])],
    "user: a name": [SYSTEM, {**user(), "name": "ann"}],
    "system: one part": [{"role": "system", "content": [text("Be brief.")]}, user()],
    "system: two parts": [{"role": "system", "content": [text("Be"), text("brief.")]}, user()],
    "system: a billing line": [
        {"role": "system", "content": "x-anthropic-billing-header: cch=1\nBe brief."},
        user(),
    ],
    "system: a billing part": [
        {"role": "system", "content": [text("x-anthropic-billing-header: cch=1;"), text("Be brief.")]},
        user(),
    ],
    "system: two of them": [SYSTEM, {"role": "system", "content": "Be kind."}, user()],
    "system: late": asked(said(), {"role": "system", "content": "Be kind."}, user("r")),
    "developer": [{"role": "developer", "content": "Be brief."}, user()],
    "developer: parts": [{"role": "developer", "content": [text("Be"), text("brief.")]}, user()],
    "developer: after a system text": [SYSTEM, {"role": "developer", "content": "Be kind."}, user()],
    "developer: late": asked(said(), {"role": "developer", "content": "Be kind."}, user("r")),
    "call: content null": asked(calling(content=None), result()),
    "call: content absent": asked(calling(), result()),
    "call: content empty": asked(EMPTY, result()),
    "call: content in parts": asked(calling(content=[text("I look.")]), result()),
    "call: content null, then a user": asked(calling(content=None), result(), said("done"), user("next")),
    "call: content null, then calls again": asked(
        calling(content=None), result(), calling(content=None), result()
    ),
    "call: as OpenAI's client dumps it": asked(
        calling(called(index=0), content=None, refusal=None, annotations=[], audio=None, function_call=None),
        result(),
    ),
    "call: no arguments": asked(calling(called(""), content=""), result()),
    "call: empty arguments": asked(calling(called("{}"), content=""), result()),
    "call: arguments cut": asked(calling(called('{"k": "v'), content=""), result()),
    "call: arguments that are a list": asked(calling(called("[1]"), content=""), result()),
    "call: arguments with spaces": asked(calling(called(' {"k" :"v","n":1.50 } '), content=""), result()),
    "call: arguments outside ASCII": asked(calling(called('{"k": "\\u00e9 東京"}'), content=""), result()),
    "call: keys in another order": asked(
        calling(
            {
                "type": "function",
                "function": {"name": "f", "arguments": '{"k": "v"}'},
                "index": 0,
                "id": "callabc12",
            },
            content="",
        ),
        result(),
    ),
    "call: an empty list": asked(said(tool_calls=[]), user("r")),
    "call: a list that is null": asked(said(tool_calls=None), user("r")),
    "reasoning": asked(calling(content="", reasoning="hm"), result()),
    "reasoning_content": asked(calling(content="", reasoning_content="hm"), result()),
    "reasoning, then a user": asked(said(reasoning="hm"), user("r")),
    "reasoning: null": asked(said(reasoning=None, reasoning_content=None), user("r")),
    "reasoning: both": asked(said(reasoning="hm", reasoning_content="hm"), user("r")),
    "assistant: a refusal": asked(said(None, refusal="No."), user("r")),
    "assistant: a refusal part": asked(said([{"type": "refusal", "refusal": "No."}]), user("r")),
    "assistant: parts": asked(said([text("one"), text("two")]), user("r")),
    "assistant: null": asked(said(None), user("r")),
    "assistant: a name": asked(said(name="model"), user("r")),
    "assistant: last": asked(said("So far")),
    "result: one part": asked(EMPTY, result([text("one")])),
    "result: two parts": asked(EMPTY, result([text("one"), text("two")])),
    "result: two parts, one marked": asked(
        EMPTY, result([text("one"), text("two", cache_control={"type": "ephemeral"})])
    ),
    "result: no parts": asked(EMPTY, result([])),
    "result: empty": asked(EMPTY, result("")),
    "result: a name": asked(EMPTY, result(name="f")),
    "results: two": asked(TWO_CALLS, result(), result("s", OTHER)),
    "results: two, in parts": asked(TWO_CALLS, result([text("r")]), result([text("s"), text("t")], OTHER)),
    "results: in another order": asked(TWO_CALLS, result("s", OTHER), result()),
    "result, then a user in parts": asked(EMPTY, result(), user([text("one"), text("two")])),
}
"""What engines render. Those with calls are given a tool."""

REFUSED: Mapping[str, list[Message]] = {
    "a part without a text": [SYSTEM, user([{"type": "text"}])],
    "a text that is null": [SYSTEM, user([text("one"), {"type": "text", "text": None}])],
    "an unknown part": [SYSTEM, user([text("one"), {"type": "hologram", "hologram": "x"}])],
    "a part without a type": [SYSTEM, user([{"text": "one"}])],
    "null in a list": [SYSTEM, user([None])],
    "a number in a list": [SYSTEM, user([3])],
    "a content that is a number": [SYSTEM, user(3)],
    "a user's content that is null": [SYSTEM, user(None)],
    "a call of another kind": asked(
        calling({"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}), result()
    ),
}
"""What vLLM answers 400 to."""


def tools_of(messages: list[Message]) -> list[Message] | None:
    """Return the tools of a shape: one where tools are called."""
    return [TOOL] if any(one.get("tool_calls") for one in messages) else None


@attrs.frozen
class Conversation:
    """A conversation with its name and tools."""

    name: str
    messages: list[Message]
    tools: list[Message] | None


@cache
def conversations() -> list[Conversation]:
    """Return all shapes, and what real client programs sent."""
    shapes = [Conversation(name, one, tools_of(one)) for name, one in {**SHAPES, **REFUSED}.items()]
    lines = CLIENTS.read_text(encoding="utf-8").splitlines()
    recorded = [json.loads(line) for line in lines]
    programs = [
        Conversation(f"{one['program']}: {one['shape']}", one["messages"], one["tools"] or None)
        for one in recorded
    ]
    return shapes + programs
