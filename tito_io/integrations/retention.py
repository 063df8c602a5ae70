"""Find how long a chat template keeps the reasoning of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tito_core import TemplateRefused, TokenizeFn
from tito_io.families.template_values import REASONING_FIELDS
from tito_io.families.tokenizer_family import TokenizerFamily

Retention = Literal["template", "tool_cycle", "all"]
"""How long reasoning is kept: "template" not at all, "tool_cycle" until a user speaks, "all" always."""

QUESTION = {"role": "user", "content": "What is 3 + 4?"}
AGAIN = {"role": "user", "content": "Sure?"}
CALL = {"id": "call0abcd", "type": "function", "function": {"name": "add", "arguments": {"a": 3}}}
RESULT = {"role": "tool", "tool_call_id": "call0abcd", "name": "add", "content": "7"}


def retention(family: TokenizerFamily, template_args: Mapping[str, Any]) -> Retention:
    """Return how long a template keeps reasoning; "all" where it never writes any.

    A template that rejects a question is taken to drop nothing there.

    Args:
        family: The tokenizer and its template.
        template_args: Variables for the template.
    """
    tokenize = family.tokenize_fn(**template_args)
    if not _writes(tokenize, {}):
        return "all"
    if not _writes(tokenize, {"tool_calls": [CALL]}, RESULT):
        return "template"
    return "all" if _writes(tokenize, {}, AGAIN) else "tool_cycle"


def _writes(tokenize: TokenizeFn, turn: dict[str, Any], *after: dict[str, Any]) -> bool:
    """Return whether two turns that differ in their reasoning are written differently."""
    thoughts = [dict.fromkeys(REASONING_FIELDS, text) for text in ("Add.", "Count.")]
    turns = [{"role": "assistant", "content": "Seven.", **turn, **thought} for thought in thoughts]
    try:
        first, second = (
            list(tokenize([QUESTION, one, *after], add_generation_prompt=bool(after))) for one in turns
        )
    except TemplateRefused:
        return True
    return first != second
