"""What a template may tell apart: the kind of a turn, and the shape of what follows it.

Turns of one kind and environments of one shape differ in their words alone. What is none of the kinds here
has no name, and is proven each time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Self

import attrs

from ..normalization.canonical import REASONING
from .stand_in import WRITTEN, calls_of

Plain = dict[str, Any]
WORD = re.compile(r"[\w.:-]{1,128}", re.ASCII)
"""What names and ids of calls are made of. No template's close is spelled with these alone."""
BEFORE = ("user", "tool")
FOLLOWING = ("user", "tool", "system", "developer", "assistant")
KEYS = frozenset(("role", "content", "tool_call_id", "name"))
MANY = "+"


def _content(message: Plain) -> str | None:
    """Name the kind of a content; None where it has no name."""
    if "content" not in message:
        return "absent"
    content = message["content"]
    if content is None:
        return "null"
    if not isinstance(content, str):
        return None
    return "text" if content.strip() else "empty" if not content else None


@attrs.frozen(kw_only=True)
class TurnKind:
    """The kind of an assistant turn."""

    before: str
    """The role of the message before it."""
    reasoning: bool
    calls: int
    """How many tool calls it has, 2 for more than one."""
    content: str
    """`text`, `empty`, `null` or `absent`."""

    @classmethod
    def of(cls, turn: Plain, before: str) -> Self | None:
        """Return the kind of a turn, None where it has no name.

        >>> TurnKind.of({"role": "assistant", "content": "hi"}, "user")
        TurnKind(before='user', reasoning=False, calls=0, content='text')
        >>> TurnKind.of({"role": "assistant", "content": "hi", "audio": {"id": "a"}}, "user") is None
        True
        """
        calls, content = calls_of(turn), _content(turn)
        if content is None or before not in BEFORE or any(map(turn.get, turn.keys() - WRITTEN)):
            return None
        if calls != (turn.get("tool_calls") or []) or not all(map(_is_usual, calls)):
            return None
        reasoning = any(map(turn.get, REASONING))
        return cls(
            before=before, reasoning=reasoning, calls=min(len(calls), 2), content=_said(content, calls)
        )

    @property
    def label(self) -> str:
        """What it is called in tables."""
        words = ("reasoning", "")[not self.reasoning], ("plain", "a call", "calls")[self.calls]
        named = " and ".join(filter(None, words)) if self.calls else words[0] or words[1]
        return named if self.before == "user" else f"{named}, in a tool loop"


def _said(content: str, calls: Sequence[Plain]) -> str:
    """Return the kind of content that the stand-in for a turn has: without calls it always has a text."""
    return content if calls else "text"


def _is_usual(call: Plain) -> bool:
    """Tell whether a call is one of the OpenAI form, its name and id nothing but words."""
    function = call.get("function")
    if not isinstance(function, dict) or not call.keys() <= {"id", "type", "function", "index"}:
        return False
    named = (function.get("name"), call.get("id"))
    return all(isinstance(word, str) and WORD.fullmatch(word) for word in named)


def shape_of(environment: Sequence[Plain], turn: Plain) -> tuple[str, ...] | None:
    """Return the shape of what follows a turn, None where it has no name.

    Several neighbours alike count as many. A tool's result names the call that it answers, in order.

    >>> call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    >>> turn = {"role": "assistant", "tool_calls": [call]}
    >>> result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    >>> shape_of([result, {"role": "user", "content": "?"}], turn)
    ('tool', 'user')
    >>> shape_of([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], {"role": "assistant"})
    ('user+',)
    """
    named = [_shape(message) for message in environment]
    answered = [message.get("tool_call_id") for message in environment if message["role"] == "tool"]
    called = [call.get("id") for call in calls_of(turn)]
    if None in named or answered != called[: len(answered)] or len(set(called)) != len(called):
        return None
    return tuple(_counted(str(name), len(list(group))) for name, group in groupby(named))


def _counted(name: str, count: int) -> str:
    return f"{name}{MANY}" if count > 1 else name


def _shape(message: Plain) -> str | None:
    """Return the shape of one message: its role, and what is unusual about it."""
    content, role = _content(message), message["role"]
    if role not in FOLLOWING or not message.keys() <= KEYS or content not in {"text", "empty"}:
        return None
    named = message.get("name")
    if role != "tool" and (named is not None or "tool_call_id" in message):
        return None
    marks = ("" if content == "text" else ":empty", "" if named is None else ":named")
    return "".join((str(role), *marks))


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
    calls = iter(calls_of(turn))
    names = (name.removesuffix(MANY) for name in shape for _ in range(many if name.endswith(MANY) else 1))
    return tuple(_message(name, calls, f"{words} {place}.") for place, name in enumerate(names))


def _message(name: str, calls: Iterator[Plain], text: str) -> Plain:
    role, *marks = name.split(":")
    message: Plain = {"role": role, "content": "" if "empty" in marks else text}
    if role == "tool":
        call = next(calls)
        message["tool_call_id"] = call["id"]
        message |= {"name": call["function"]["name"]} if "named" in marks else {}
    return message
