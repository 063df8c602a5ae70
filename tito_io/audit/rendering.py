"""A family as the audit asks it: with the tools and arguments that a call's key holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from tito_core import InputError, Message
from tito_io.families.family import Bound, Family

HELD = 64
"""Keys whose bound templates are held."""


@attrs.frozen(kw_only=True)
class AuditRendering:
    """What to render with: a few values that can be sent elsewhere, unlike a loaded family."""

    family: Path
    template: str | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    """For calls that do not say what they were rendered with."""
    template_args: Mapping[str, Any] = attrs.field(factory=dict)
    """Likewise."""
    date: datetime | None = None
    """The time that templates print, where it is not now."""

    def load(self) -> FamilyRenderer:
        """Load the family; raises `FolderError` that says what is wrong with it."""
        clock = None if self.date is None else _Stopped(self.date)
        family = Family.load(self.family, template=self.template, clock=clock)
        return FamilyRenderer(family, self)


@attrs.frozen
class _Stopped:
    date: datetime

    def __call__(self) -> datetime:
        return self.date


@attrs.define(slots=False)
class FamilyRenderer:
    """Renders and decodes for the audit."""

    family: Family
    given: AuditRendering
    markers: frozenset[int] = attrs.field(init=False)
    bound: dict[str | None, Bound] = attrs.field(init=False, factory=dict)

    @markers.default
    def _special(self) -> frozenset[int]:
        """Return the special tokens: what templates fence turns with, and what engines stop at."""
        added = self.family.tokenizer.get_added_tokens_decoder()
        special = {number for number, token in added.items() if token.special}
        return frozenset(special | set(self.family.stop_ids))

    def ids(
        self, messages: Sequence[Message], key: str | None, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return ids; raises `TemplateRefused`, and `InputError` for a key that holds no tools."""
        return self._bound(key)(messages, add_generation_prompt=add_generation_prompt)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens too."""
        return self.family.decode(ids)

    def _bound(self, key: str | None) -> Bound:
        if key not in self.bound:
            tools, args = (self.given.tools, self.given.template_args) if key is None else opened(key)
            if len(self.bound) >= HELD:
                self.bound.clear()
            self.bound[key] = self.family.tokenize_fn(tools=tools or None, **args)
        return self.bound[key]


def opened(key: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the tools and arguments that a `render_key` holds; raises `InputError` where it is none.

    >>> opened('[[],{"thinking":true}]')
    ([], {'thinking': True})
    """
    try:
        tools, args = json.loads(key)
    except (ValueError, TypeError):
        tools, args = None, None
    if not isinstance(tools, list) or not isinstance(args, dict):
        raise InputError(
            f"a call's key is {key!r:.60}: tito_core.render_key makes one of tools and arguments"
        )
    return tools, args
