r"""Undo what some agents write into the turns that they send back: stop string, calls and reasoning as text.

smolagents 1.26 adds the stop string that ended a turn to its text again (`CodeAgent` in `agents.py`), and
repeats calls as "Calling tools:\n" and a Python list (`ActionStep.to_messages` in `memory.py`). Both begin
with a stop string of the request, which the model cannot have sampled. Only a repetition is undone. Text that
an agent adds after a stop string and that says anything new stays, and so does the branch that it starts.

gptme 0.35 writes reasoning between tags before the content (`stream` in `llm/llm_openai.py`). GitHub's
Copilot CLI 1.0 writes it in the place of a content that is empty, beside the reasoning and the calls.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tito_core import Message
from tito_io.engines.replies.hermes import THINK, THOUGHT

CALLING = "Calling tools:"
INTERPRETER = "python_interpreter"
"""The name of the calls that repeat code."""
LONGEST = 1 << 18
"""Longest list of calls that is read, in characters: Python's parser takes some hundred bytes for each."""


def undone(message: Message, stops: Sequence[str]) -> Message:
    """Return an assistant's message as it was sampled, or the `message` itself where nothing is repeated.

    >>> undone({"role": "assistant", "content": "<code>f()</code>"}, ["</code>"])
    {'role': 'assistant', 'content': '<code>f()'}
    >>> undone({"role": "assistant", "content": "<think>hm</think>So"}, [])
    {'role': 'assistant', 'content': 'So', 'reasoning': 'hm'}
    """
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, str):
        return message
    plain = _without_reasoning(message, content)
    return plain if message.get("tool_calls") else _without_stop(plain, plain["content"], stops)


def _without_reasoning(message: Message, content: str) -> Message:
    """Return a message whose content does not repeat the reasoning, or stand for it."""
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning:
        repeated = bool(message.get("tool_calls")) and content.strip() == str(reasoning).strip()
        return {**message, "content": ""} if repeated else message
    thought, closed, text = content.partition(THOUGHT)
    if not closed or not thought.lstrip().startswith(THINK):
        return message
    return {**message, "reasoning": thought.lstrip().removeprefix(THINK), "content": text}


def _without_stop(message: Message, content: str, stops: Sequence[str]) -> Message:
    text, calls = _without_calls(content) if CALLING in stops else (content, [])
    stop = next((stop for stop in stops if text.endswith(stop)), "")
    if len(text) == len(content) and not stop:
        return message
    return {**message, "content": text.removesuffix(stop), **({"tool_calls": calls} if calls else {})}


def _without_calls(content: str) -> tuple[str, list[Any]]:
    """Return a text without the calls that end it, and those calls, unless they repeat code of the text."""
    text, mark, written = content.rpartition(f"{CALLING}\n")
    calls = _calls(written) if mark else None
    if calls is None:
        return content, []
    text = text.removesuffix("\n")
    repeated = all(_repeats_code(call["function"], text) for call in calls)
    return text, [] if repeated else calls


def _calls(written: str) -> list[Any] | None:
    """Return the calls of a Python list; None where it is no such list."""
    if len(written) > LONGEST:
        return None
    try:
        calls = ast.literal_eval(written)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    whole = isinstance(calls, list) and calls and all(_is_call(call) for call in calls)
    return calls if whole else None


def _is_call(call: Any) -> bool:
    keys = {"id", "type", "function"}
    return isinstance(call, dict) and call.keys() == keys and _is_function(call["function"])


def _is_function(function: Any) -> bool:
    return isinstance(function, dict) and function.keys() == {"name", "arguments"}


def _repeats_code(function: dict[str, Any], text: str) -> bool:
    """Return whether a call is only what `CodeAgent` makes of code in the text."""
    code = function["arguments"]
    return function["name"] == INTERPRETER and isinstance(code, str) and bool(code.strip()) and code in text
