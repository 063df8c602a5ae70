"""What the sampler sees of a prompt: ids, and nothing else, so that every route shows it the same.

The tools are read from the text of the system turn, the words to echo from the turn before, and what may be
said next from what stands after the last turn's opening.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from attrs import frozen

from .vocabulary import CLOSE, OPEN, THINK, THOUGHT, Vocabulary

HEARD = 400
"""How many characters of the turn before are listened to."""
TOOLS = re.compile(r"<tools>\n(.*)\n</tools>", re.DOTALL)
WORD = re.compile(r"[^\W\d_]{4,}")


class Opening(Enum):
    """Where in a turn the sampler takes over."""

    FRESH = "an assistant turn that nothing was said in yet"
    THINKING = "a thought that is not closed"
    ANSWERING = "an assistant turn past its thought, or somewhere in its words"
    ELSEWHERE = "no assistant turn at all"


@frozen
class Tool:
    """One function that may be called."""

    name: str
    schema: Mapping[str, Any]
    """The JSON schema of its arguments."""


@frozen
class PromptView:
    """One prompt, read."""

    opening: Opening
    tools: tuple[Tool, ...]
    heard: tuple[str, ...]
    """Words of four letters or more from the turn before."""
    after_results: bool
    """Whether that turn was a tool's."""


def read(ids: Sequence[int], words: Vocabulary) -> PromptView:
    """Read a prompt. Any ids will do: what cannot be understood is not there."""
    start = _last(ids, words.id(OPEN), len(ids))
    if start < 0:
        return PromptView(Opening.ELSEWHERE, (), _heard(words.decode(ids)[-HEARD:]), after_results=False)
    before = _last(ids, words.id(OPEN), start)
    role, _, spoken = words.decode(ids[before + 1 : start]).partition("\n")
    opening = _opening(ids[start + 1 :], words)
    return PromptView(opening, _tools(ids, words), _heard(spoken[-HEARD:]), after_results=role == "tool")


def _last(ids: Sequence[int], wanted: int, stop: int) -> int:
    """Return the last place before `stop` where `wanted` stands, or -1."""
    return next((place for place in range(stop - 1, -1, -1) if ids[place] == wanted), -1)


def _opening(turn: Sequence[int], words: Vocabulary) -> Opening:
    """Judge a turn that was begun by its first words and its thinking tags."""
    text = words.decode(turn)
    if not text.startswith("assistant\n") or words.id(CLOSE) in turn:
        return Opening.ELSEWHERE
    if text == "assistant\n":
        return Opening.FRESH
    inside = _last(turn, words.id(THINK), len(turn)) > _last(turn, words.id(THOUGHT), len(turn))
    return Opening.THINKING if inside else Opening.ANSWERING


def _heard(text: str) -> tuple[str, ...]:
    return tuple(WORD.findall(text.replace(CLOSE, " ")))


def _tools(ids: Sequence[int], words: Vocabulary) -> tuple[Tool, ...]:
    """Read the tools from the first turn, if that is a system turn which lists some."""
    close = words.id(CLOSE)
    if ids[0] != words.id(OPEN) or close not in ids:
        return ()
    text = words.decode(ids[: list(ids).index(close)])
    found = TOOLS.search(text) if text.startswith(OPEN + "system\n") else None
    tools = [_tool(line) for line in found.group(1).split("\n")] if found else []
    return tuple(tool for tool in tools if tool is not None)


def _tool(line: str) -> Tool | None:
    """Read one line of the list; None where it does not describe a function."""
    try:
        function = json.loads(line)["function"]
        name, schema = function["name"], function.get("parameters") or {}
        return Tool(name, schema) if isinstance(name, str) and isinstance(schema, dict) else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
