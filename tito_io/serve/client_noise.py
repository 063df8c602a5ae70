"""Strip text that client programs add to a conversation (billing lines, cache markers) before matching.

A rule changes the same thing in the same way in every request, so that a history stays equal to the stored
one. Nothing is rewritten here that can be ignored when histories are compared: the kernel's `Forgiveness` and
turns that come back as text (`TEXT_ECHO`), which are matched as they were sampled and rendered as they came.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from tito_core import Forgiveness, InputError, Message
from tito_core.normalization.receipts import CHOICES


class NoiseRule(Enum):
    """Something that client programs add or change, and what is done about it."""

    CACHE_CONTROL = "remove cache markers, which move with every turn"
    BILLING_HEADER = "remove a client's billing line from the system text, new each time"
    DEVELOPER = "make a developer message a system message"
    TEXT_ECHO = "match a turn that comes back with its stop string, or with its calls or reasoning as text"


DEFAULT: tuple[NoiseRule | Forgiveness, ...] = (*NoiseRule, *(one for one in CHOICES if CHOICES[one].gateway))
"""Ignored by default: without these, every turn of some client starts a new branch."""
BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE | re.MULTILINE)
MARK = "cache_control"
MARKED_INSIDE = ("content", "tool_calls", "function")
"""Where markers stand besides a message and a tool themselves; programs set them no deeper."""
SYSTEM = frozenset(("system", "developer"))


def parse_rules(names: Sequence[str]) -> tuple[NoiseRule | Forgiveness, ...]:
    """Return the rules that names stand for: `default` for all default ones, `none` for no rule.

    >>> [one.name for one in parse_rules(["cache-control", "dropped-reasoning"])]
    ['CACHE_CONTROL', 'DROPPED_REASONING']
    """
    known: dict[str, tuple[NoiseRule | Forgiveness, ...]] = {"default": DEFAULT, "none": ()}
    known |= {option_name(rule): (rule,) for rule in (*NoiseRule, *CHOICES)}
    others = [name for name in names if name != "none"]
    if others and len(others) < len(names):
        raise InputError(f"--forgive none contradicts --forgive {others[0]!r:.40}: leave one of them out")
    rules: dict[NoiseRule | Forgiveness, None] = {}
    for name in names:
        found = known.get(name.lower().replace("_", "-"))
        if found is None:
            raise InputError(f"--forgive {name!r:.40}: give one of {', '.join(known)}")
        rules |= dict.fromkeys(found)
    return tuple(rules)


def option_name(rule: Enum) -> str:
    """Return a rule's name on the command line and in metrics.

    >>> option_name(NoiseRule.CACHE_CONTROL)
    'cache-control'
    """
    return rule.name.lower().replace("_", "-")


@attrs.frozen
class CleanPrompt:
    """A conversation without client noise.

    Attributes:
        messages: What is left of the messages.
        tools: What is left of the tools.
        removed: How often each rule found something, by the rule's name.
    """

    messages: list[Message]
    tools: list[Mapping[str, Any]]
    removed: Mapping[str, int]


def _patterns(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(text, re.MULTILINE) for text in texts)
    except re.error as error:
        raise InputError(f"--strip-system: {error}; give a regular expression") from error


@attrs.frozen
class NoiseFilter:
    """Removes client noise.

    Attributes:
        rules: The rules that hold.
        strip_system: The operator's regular expressions; what they match is removed from system texts.
    """

    rules: frozenset[NoiseRule] = frozenset(NoiseRule)
    strip_system: tuple[re.Pattern[str], ...] = attrs.field(default=(), converter=_patterns)

    def clean(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> CleanPrompt:
        """Return `messages` and `tools` without noise.

        >>> part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
        >>> prompt = NoiseFilter().clean([{"role": "user", "content": [part]}], [])
        >>> prompt.messages, dict(prompt.removed)
        ([{'role': 'user', 'content': [{'type': 'text', 'text': 'hi'}]}], {'cache-control': 1})
        """
        removed: Counter[str] = Counter()
        cleaned = [self._message(message, removed) for message in messages]
        marked = NoiseRule.CACHE_CONTROL in self.rules
        return CleanPrompt(
            messages=[message for message in cleaned if message is not None],
            tools=[_unmarked(tool, removed) if marked else tool for tool in tools],
            removed=removed,
        )

    def _message(self, message: Message, removed: Counter[str]) -> Message | None:
        """Return one message; None for a system text of which nothing is left."""
        role, content = message.get("role"), message.get("content")
        if isinstance(content, str) and role not in SYSTEM and MARK not in message:
            return message  # most messages of a long conversation; a copy of each would be what a turn costs
        clean = dict(message)
        if NoiseRule.CACHE_CONTROL in self.rules:
            clean = _unmarked(clean, removed)
        if role == "developer" and NoiseRule.DEVELOPER in self.rules:
            removed[option_name(NoiseRule.DEVELOPER)] += 1
            clean["role"] = "system"
        whole = content = clean.get("content")
        if role in SYSTEM:
            content = self._system(content, removed)
        stripped = content != whole
        if stripped and content in ("", []):
            return None
        return {**clean, "content": content} if "content" in message else clean

    def _system(self, content: Any, removed: Counter[str]) -> Any:
        """Return a system text without what a program put there; parts that are empty now are dropped."""
        if isinstance(content, str):
            return self._text(content, removed)
        if not isinstance(content, list):
            return content
        parts = []
        for part in content:
            text = part.get("text") if isinstance(part, dict) else None
            left = self._text(text, removed) if isinstance(text, str) else text
            if left == text:
                parts.append(part)
            elif left:
                parts.append({**part, "text": left})
        return parts

    def _text(self, text: str, removed: Counter[str]) -> str:
        billing = NoiseRule.BILLING_HEADER
        rules = [(BILLING, option_name(billing))] if billing in self.rules else []
        for pattern, name in (*rules, *((pattern, "strip-system") for pattern in self.strip_system)):
            text, count = pattern.subn("", text)
            removed.update({name: count} if count else {})
        return text


def _unmarked(value: Any, removed: Counter[str]) -> Any:
    """Return a message or a tool without cache markers, in it and in its parts."""
    if isinstance(value, list):
        return [_unmarked(one, removed) for one in value]
    if not isinstance(value, Mapping):
        return value
    if MARK in value:
        removed[option_name(NoiseRule.CACHE_CONTROL)] += 1
    return {k: _unmarked(v, removed) if k in MARKED_INSIDE else v for k, v in value.items() if k != MARK}
