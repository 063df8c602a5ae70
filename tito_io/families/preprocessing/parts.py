"""Change contents that are lists of parts, as an engine does before its chat template sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from tito_core import TemplateRefused
from tito_io.fields import json_kind

from .message_rules import MEDIA, Keys, MessageRules

Plain = dict[str, Any]

NAMED_TEXTS = ("refusal", "thinking")
"""Types of parts that have their text under their own name."""
BILLING = "x-anthropic-billing-header"
"""How the line begins that Claude Code puts before its system text, with another value in every request."""


def ordered(values: Mapping[str, Any], keys: Keys | None) -> Plain:
    """Return an object with the keys that an engine keeps, in its order.

    >>> ordered({"x": 1, "name": "f", "id": None}, Keys(("id", "name"), fills={"id": 0}))
    {'id': 0, 'name': 'f'}
    """
    if keys is None:
        return dict(values)
    given = {key: values[key] for key in keys.names if values.get(key) is not None}
    found = {
        key: given.get(key, keys.fills.get(key)) for key in keys.names if key in given or key in keys.fills
    }
    if keys.others:
        known = {*keys.names, *keys.dropped}
        found |= {key: value for key, value in values.items() if key not in known}
    first: Iterable[str] = [key for key in values if key in found] if keys.as_given else ()
    return {key: found[key] for key in dict.fromkeys((*first, *(given if keys.fills_last else ()), *found))}


def template_parts(content: Sequence[Any], rules: MessageRules, path: str) -> list[Plain]:
    """Return the parts that a template gets of a content.

    Raises `TemplateRefused` for parts that the engine rejects, with their path.
    """
    if content and rules.own_types and not any(_is_own(one, rules) for one in content):
        raise TemplateRefused(f"{_fault(content[0], rules, f'{path}[0]')}: {rules.engine} takes no such part")
    return list(_kept(content, rules, path))


def _fault(part: Any, rules: MessageRules, path: str) -> str:
    """Return what is wrong with a part that the engine does not know."""
    if not isinstance(part, Mapping):
        return f"{path} is {json_kind(part)}"
    if _kind(part) not in rules.own_types:
        return f"{path}.type is {part['type']!r:.60}" if "type" in part else f"{path} has no type"
    return f"{path} has no text"


def _kept(content: Sequence[Any], rules: MessageRules, path: str) -> Iterator[Plain]:
    for index, part in enumerate(content):
        found = _part(part, rules, f"{path}[{index}]")
        if found is not None:
            yield found


def _is_own(part: Any, rules: MessageRules) -> bool:
    """Return whether a part is one of the engine's types, and has its text if it is one of those."""
    kind = _kind(part)
    return kind in rules.own_types and (kind not in rules.text_types or _text(part) is not None)


def _kind(part: Any) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    return kind if isinstance(kind, str) else None


def _text(part: Mapping[str, Any]) -> Any:
    """Return the text of a part, which is under its type's own name in two of them."""
    kind = part.get("type")
    return part.get(kind if kind in NAMED_TEXTS else "text")


def _part(part: Any, rules: MessageRules, path: str) -> Plain | None:
    """Return a part for the template: a text, or what stands for a medium; None if it is left out."""
    if isinstance(part, str) and rules.takes_strings:
        return {"type": "text", "text": part}
    kind = _kind(part)
    if kind in rules.text_types:
        return _text_part(part, rules, path)
    if kind in MEDIA:
        return {"type": MEDIA[kind]}
    if kind == "tool_reference":
        return {"type": kind, "name": part.get("name")}
    if kind in rules.passed:
        return dict(part)
    if rules.skips_unknown or kind in rules.left_out:
        return None
    if not isinstance(part, Mapping):
        raise TemplateRefused(f"{path} is {json_kind(part)}: {rules.engine} takes an object with a type")
    raise TemplateRefused(f"{path}.type is {kind!r:.60}: {rules.engine} has no such part")


def _text_part(part: Mapping[str, Any], rules: MessageRules, path: str) -> Plain | None:
    text = _text(part)
    if text is None and rules.skips_null:
        return None
    if not isinstance(text, str):
        raise TemplateRefused(f"{path}.text is {json_kind(text)}: {rules.engine} takes a string there")
    return ordered({**part, "type": "text", "text": text}, rules.parts)


def joined(
    parts: Sequence[Mapping[str, Any]], separator: str, *, skips_empty: bool, skips_first: bool = False
) -> str:
    """Return the texts of parts as one.

    >>> joined([{"text": "a"}, {"text": ""}], "/", skips_empty=False)
    'a/'
    """
    texts = (str(one.get("text", "")) for one in parts)
    kept = dropwhile(lambda one: not one, texts) if skips_first else texts
    return separator.join(filter(None, kept) if skips_empty else kept)


def without_billing(content: Any) -> Any:
    r"""Return a system text, or its parts, without a billing line at the beginning.

    >>> without_billing("x-anthropic-billing-header: cch=1\nBe brief."), without_billing("Be brief.")
    ('Be brief.', 'Be brief.')
    """
    if isinstance(content, str):
        return (content.partition("\n")[2] or []) if content.startswith(BILLING) else content
    return [left for part in content for left in _without_billing(part)]


def _without_billing(part: Any) -> Iterator[Any]:
    """Yield a part without the line, unless nothing is left of it."""
    text = part.get("text") if _kind(part) == "text" else part
    if not isinstance(text, str) or not text.startswith(BILLING):
        yield part
    elif left := without_billing(text):
        yield left if isinstance(part, str) else {**part, "text": left}
