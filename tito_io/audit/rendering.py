"""Render with a model folder, and with the tools and template arguments of each call's key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from tito_core import InputError, Message
from tito_io.cli.options import load_family
from tito_io.families.family import Bound, Family
from tito_io.families.preprocessing.engines import RULES
from tito_io.samples.lines import lines

NAMED = re.compile(rb'"engine":\s*"([a-z-]+)"|"system_fingerprint":\s*"(vllm)-')
MOST_KEYS = 64
"""Keys whose bound templates are in memory."""


@attrs.frozen(kw_only=True)
class AuditRendering:
    """The folder and arguments of renderings. Unlike a loaded family it can be pickled.

    Attributes:
        family: The model folder, or a GGUF file.
        template: The name of one of its templates, or a file; None for its default.
        tools: Tools of calls that do not store theirs.
        template_args: Template arguments of calls that do not store theirs.
        date: The time that templates print; None for now.
        rendered_as: The engine whose prompts are rendered.
    """

    family: Path
    template: str | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    template_args: Mapping[str, Any] = attrs.field(factory=dict)
    date: datetime | None = None
    rendered_as: str = "transformers"

    def load(self) -> FamilyRenderer:
        """Load the model folder or file; raises `FolderError` that says what is wrong with it."""
        clock = None if self.date is None else partial(copy, self.date)  # unlike a lambda it can be pickled
        family = load_family(self.family, template=self.template, clock=clock)
        return FamilyRenderer(family.rendered_as(self.rendered_as), self)


@attrs.define(slots=False)
class FamilyRenderer:
    """Renders messages and decodes ids for the audit.

    Attributes:
        family: The loaded model folder.
        defaults: Tools and arguments of calls without a key.
        markers: Special tokens, which templates put around turns and which engines stop at.
        bound: The template with the tools and arguments of a key, by key.
    """

    family: Family
    defaults: AuditRendering
    markers: frozenset[int] = attrs.field(init=False)
    bound: dict[str | None, Bound] = attrs.field(init=False, factory=dict)

    @markers.default
    def _special(self) -> frozenset[int]:
        added = self.family.tokenizer.get_added_tokens_decoder()
        special = {number for number, token in added.items() if token.special}
        return frozenset(special | set(self.family.stop_ids))

    def ids(
        self, messages: Sequence[Message], key: str | None, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return ids; raises `TemplateRefused`, and `InputError` for a key without tools and arguments."""
        if key not in self.bound:
            tools, args = (self.defaults.tools, self.defaults.template_args) if key is None else read_key(key)
            if len(self.bound) >= MOST_KEYS:
                self.bound.clear()
            self.bound[key] = self.family.tokenize_fn(tools=tools or None, **args)
        return self.bound[key](messages, add_generation_prompt=add_generation_prompt)

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        return self.family.decode(ids)


def named_engine(file: Path) -> str:
    """Return the engine that the calls of a file name, for its prompts; else `transformers`.

    A rollout of tito and the gateway write its name. vLLM's replies have it in their fingerprint.

    Raises:
        InputError: The calls name several engines, or one without rules.
    """
    if not file.is_file():  # a pipe cannot be read twice
        return "transformers"
    found = (NAMED.search(one.text) for one in lines(file))
    names = sorted({(one[1] or one[2]).decode() for one in found if one is not None})
    if len(names) > 1 or not RULES.keys() >= set(names):
        instead = f"choose the rules with --as: {', '.join(RULES)}"
        raise InputError(f"{file} has prompts of {' and '.join(names):.60}; {instead}")
    return names[0] if names else "transformers"


def read_key(key: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the tools and template arguments of a render key; raises `InputError` for other strings.

    >>> read_key('[[],{"thinking":true}]')
    ([], {'thinking': True})
    """
    try:
        tools, args = json.loads(key)
    except (ValueError, TypeError):
        tools, args = None, None
    if not isinstance(tools, list) or not isinstance(args, dict):
        raise InputError(f"a call's key is {key!r:.60}: make keys with tito_core.render_key")
    return tools, args
