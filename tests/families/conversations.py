"""The conversations that every real template is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

SPOKEN, ARGUMENT = "Fjord", "Oslo"
"""Words that only the sampled turn has: in its content, and in each of its calls."""
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    },
)
IDS = ("aB3dE5gH7", "bC4eF6hI8", "cD5fG7iJ9")
SYSTEM = {"role": "system", "content": "Answer in one word."}
QUESTION = {"role": "user", "content": "Where is it raining?"}
NEXT = {"role": "user", "content": "And tomorrow?"}
LATER = {"role": "system", "content": "Answer in two words."}
ANSWER = {"role": "assistant", "content": SPOKEN}
THOUGHT = {**ANSWER, "reasoning_content": "It rains there.", "reasoning": "It rains there."}


@attrs.frozen
class Case:
    """A conversation: history, the sampled turn, what the world says next."""

    shape: str
    history: tuple[Mapping[str, Any], ...]
    turn: Mapping[str, Any]
    environment: tuple[Mapping[str, Any], ...]
    truncated: bool = False

    @property
    def prompt(self) -> list[Mapping[str, Any]]:
        """The next request's messages."""
        return [*self.history, self.turn, *self.environment]

    def shown(self, text: str) -> bool:
        """Whether a rendered text has every new message as often as it was said."""
        words = [message["content"] for message in self.environment]
        return all(text.count(word) >= words.count(word) for word in words)


def call(identifier: str, city: str, *, as_object: bool) -> dict[str, Any]:
    arguments: object = {"city": city} if as_object else f'{{"city": "{city}"}}'
    return {"id": identifier, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def calling(*identifiers: str, as_object: bool, content: str | None) -> dict[str, Any]:
    """Return a turn with tool calls, each with the word to look for: a template may write only some."""
    calls = [call(identifier, ARGUMENT, as_object=as_object) for identifier in identifiers]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(identifier: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identifier, "name": "weather", "content": "rain, 7 C"}


def cases(*, as_object: bool, content: str | None) -> list[Case]:
    """Return every shape; `as_object` and `content` say how the turns with calls are written."""
    start = (SYSTEM, QUESTION)
    one = calling(IDS[0], as_object=as_object, content=content)
    two = calling(IDS[0], IDS[1], as_object=as_object, content=content)
    earlier = {**calling(IDS[2], as_object=as_object, content=content)}
    earlier["tool_calls"] = [call(IDS[2], "Bergen", as_object=as_object)]
    loop = (*start, {**earlier, **_thinking()}, result(IDS[2]))
    results = (result(IDS[0]), result(IDS[1]))
    return [
        Case("user", start, ANSWER, (NEXT,)),
        Case("user, no system text", (QUESTION,), ANSWER, (NEXT,)),
        Case("user after reasoning", start, THOUGHT, (NEXT,)),
        Case("user after a cut turn", start, ANSWER, (NEXT,), truncated=True),
        Case("user after a tool loop", loop, ANSWER, (NEXT,)),
        Case("user after reasoning in a tool loop", loop, THOUGHT, (NEXT,)),
        Case("system", start, ANSWER, (LATER,)),
        Case("system then user", start, ANSWER, (LATER, NEXT)),
        Case("tool", start, one, results[:1]),
        Case("two tools", start, two, results),
        Case("tool then user", start, one, (*results[:1], NEXT)),
        Case("tool after a tool turn", (*start, earlier, result(IDS[2])), one, results[:1]),
        Case("tool after reasoning", start, {**one, **_thinking()}, results[:1]),
        Case("tool after a cut turn", start, one, results[:1], truncated=True),
    ]


def _thinking() -> dict[str, str]:
    return {"reasoning_content": "It rains there.", "reasoning": "It rains there."}
