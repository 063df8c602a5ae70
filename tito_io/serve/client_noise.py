"""What client programs add to a conversation that nobody said: taken off at the door, by name, and counted.

A rule changes the same thing in the same way in every request, so that a history stays the one that was kept.
What the kernel can forgive when it compares (`Forgiveness`) is not done here: nothing is rewritten for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from tito_core import Forgiveness, InputError, Message

Plain = dict[str, Any]


class Rule(Enum):
    """A habit of client programs, and what is done about it."""

    CACHE_CONTROL = "marks of what to cache, which move on with every turn, are left out"
    BILLING_HEADER = "a line of a program's own accounting in the system text, new each time, is left out"
    TEXT_PARTS = "several text parts of one message become one text, a line break between them"
    DEVELOPER = "a developer's message is a system message"


DEFAULT: tuple[Rule | Forgiveness, ...] = (*Rule, Forgiveness.DROPPED_REASONING)
"""What is forgiven where nobody says: without these, every turn of some client is a branch."""
BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE | re.MULTILINE)
MARK = "cache_control"
SYSTEM = frozenset(("system", "developer"))


def named(names: Sequence[str]) -> tuple[Rule | Forgiveness, ...]:
    """Return what names say; `none` says nothing, `default` the default.

    >>> [one.name for one in named(["cache-control", "dropped-reasoning"])]
    ['CACHE_CONTROL', 'DROPPED_REASONING']
    """
    found: dict[Rule | Forgiveness, None] = {}
    for name in names:
        if name != "none":
            found |= dict.fromkeys(DEFAULT if name == "default" else (_named(name),))
    return tuple(found)


def _named(name: str) -> Rule | Forgiveness:
    member = Rule.__members__.get(_member(name)) or Forgiveness.__members__.get(_member(name))
    if member is None or (isinstance(member, Forgiveness) and member not in CHOICES):
        names = ", ".join(("default", "none", *map(spelled, (*Rule, *CHOICES))))
        raise InputError(f"--forgive {name!r:.40}: give one of {names}")
    return member


CHOICES = (Forgiveness.DROPPED_REASONING, Forgiveness.RENAMED_TOOL_IDS, Forgiveness.TRAILING_WHITESPACE)
"""What the kernel forgives by name."""


def _member(name: str) -> str:
    return name.upper().replace("-", "_")


def spelled(member: Enum) -> str:
    """Return a name as a command line has it.

    >>> spelled(Rule.CACHE_CONTROL)
    'cache-control'
    """
    return member.name.lower().replace("_", "-")


@attrs.frozen
class Entered:
    """A conversation as it is kept, and what was taken off."""

    messages: list[Message]
    tools: list[Mapping[str, Any]]
    taken: Mapping[str, int]
    """How often each rule found something."""


def _patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(text, re.MULTILINE) for text in texts)
    except re.error as error:
        raise InputError(f"--strip-system: {error}; give a regular expression") from error


@attrs.frozen
class Door:
    """The rules that hold."""

    rules: frozenset[Rule] = frozenset(Rule)
    stripped: tuple[re.Pattern[str], ...] = attrs.field(default=(), converter=_patterns)
    """What else is left out of system texts, as regular expressions of whoever runs the gateway."""

    def enter(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Entered:
        """Return a conversation as it is kept.

        >>> part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
        >>> entered = Door().enter([{"role": "user", "content": [part]}], [])
        >>> entered.messages, dict(entered.taken)
        ([{'role': 'user', 'content': 'hi'}], {'cache-control': 1})
        """
        taken: Counter[str] = Counter()
        found = [self._message(message, taken) for message in messages]
        kept = [message for message in found if message is not None]
        marked = Rule.CACHE_CONTROL in self.rules
        return Entered(kept, [_unmarked(tool, taken) if marked else tool for tool in tools], taken)

    def _message(self, message: Message, taken: Counter[str]) -> Message | None:
        """Return one message; None where nothing is left of a system text, of which something was taken."""
        role, content = message.get("role"), message.get("content")
        if isinstance(content, str) and role not in SYSTEM and MARK not in message:
            return message
        said = dict(message)
        if Rule.CACHE_CONTROL in self.rules:
            said = _unmarked(said, taken)
        if role == "developer" and Rule.DEVELOPER in self.rules:
            taken[spelled(Rule.DEVELOPER)] += 1
            said["role"] = "system"
        whole = said.get("content")
        if role in SYSTEM:
            said["content"] = self._system(whole, taken)
        taken_off = said.get("content") != whole
        if Rule.TEXT_PARTS in self.rules:
            said["content"] = _joined(said.get("content"), taken)
        return None if taken_off and said["content"] in ("", []) else _without(said, message)

    def _system(self, content: Any, taken: Counter[str]) -> Any:
        """Return a system text without what a program put there."""
        if isinstance(content, str):
            return self._text(content, taken)
        if not isinstance(content, list):
            return content
        parts = [_changed(part, lambda text: self._text(text, taken)) for part in content]
        return [part for part, old in zip(parts, content, strict=True) if part == old or part.get("text")]

    def _text(self, text: str, taken: Counter[str]) -> str:
        rules = [(BILLING, spelled(Rule.BILLING_HEADER))] if Rule.BILLING_HEADER in self.rules else []
        for pattern, name in (*rules, *((pattern, "strip-system") for pattern in self.stripped)):
            text, count = pattern.subn("", text)
            taken.update({name: count} if count else {})
        return text


def _without(said: Plain, message: Message) -> Plain:
    """Return a message without the content that it never had."""
    return said if "content" in message else {name: one for name, one in said.items() if name != "content"}


def _changed(part: Any, change: Callable[[str], str]) -> Any:
    """Return a content part with another text."""
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {**part, "text": change(part["text"])}
    return part


def _joined(content: Any, taken: Counter[str]) -> Any:
    """Return several text parts as one text, and anything else as it is; a lone one is its text anyway."""
    if not isinstance(content, list) or not content:
        return content
    texts = [part.get("text") if _is_text(part) else None for part in content]
    if not all(isinstance(text, str) for text in texts):
        return content
    if len(texts) > 1:
        taken[spelled(Rule.TEXT_PARTS)] += 1
    return "\n".join(text for text in texts if text is not None)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and part.keys() <= {"type", "text"}


def _unmarked(value: Any, taken: Counter[str]) -> Any:
    """Return a message or a tool without its marks, and its parts without theirs."""
    marks = _marks(value)
    if not marks:
        return dict(value)
    taken[spelled(Rule.CACHE_CONTROL)] += marks
    return _copied(value)


def _marks(value: Any) -> int:
    """Return how many marks there are, no deeper than programs set them: a message, its parts, a tool."""
    if isinstance(value, Mapping):
        inner = [value.get(name) for name in ("content", "tool_calls", "function")]
        return (MARK in value) + sum(_marks(one) for one in inner if not isinstance(one, str))
    return sum(map(_marks, value)) if isinstance(value, list) else 0


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = ("content", "tool_calls", "function")
        return {k: _copied(v) if k in inner else v for k, v in value.items() if k != MARK}
    return list(map(_copied, value)) if isinstance(value, list) else value
