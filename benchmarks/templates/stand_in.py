"""A stand-in tokenizer for a template without a vocabulary, and renders that are remembered.

The vocabulary is that of the embedded engine: bytes and their merges, also across a mark and a line end.
Every marker that the template's literals hold, or that its renders show, is an added token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from attrs import evolve, field, frozen
from jinja2 import meta, nodes
from tokenizers import AddedToken, Tokenizer

from benchmarks.templates.corpus import Entry
from tito_core import TemplateRefused
from tito_io.embedded.vocabulary import vocabulary
from tito_io.families.family import Family
from tito_io.families.folder import Source
from tito_io.families.limits import TemplateLimits
from tito_io.families.sandbox import Sandbox
from tito_io.families.template import ChatTemplate

LIMITS = TemplateLimits(characters=1 << 17, items=1 << 14, seconds=2.0)
NOW = datetime(2026, 1, 15, 9, 30, 15)  # noqa: DTZ001  # templates print the wall clock, which has no zone
MARKER = re.compile(
    r"<[|｜][^\s<>]{1,64}>|<[^\s<>]{1,64}[|｜]>"  # noqa: RUF001  # <|im_end|>, <|turn>, <turn|>, wide bars
    r"|</?[^\W\d][\w.:-]{0,47}>|\[/?[A-Z][A-Z_]{1,31}\]"  # <think>, </s>, [INST]
    r"|\[\|[^\s\[\]]{1,64}\|\]"  # [|endofturn|], of EXAONE
    r"|\]~!?b[\[\]]|\[e~\["  # ]~b] and [e~[, of MiniMax
)
COMPOSED = re.compile(r"<\|[^\s<>|]{1,64}\|>|<｜[^\s<>｜]{1,64}｜>|\[\|[^\s\[\]|]{1,64}\|\]")  # noqa: RUF001  # wide bars
"""Markers that a template composes, as of `'<|' + role + '|>'`."""
ODD = "<|stand-in-odd-stop|>"
"""A stop that no template writes."""
REMEMBERED = 1 << 14


@cache
def base() -> str:
    """Return the vocabulary without named tokens, as JSON."""
    return str(vocabulary().plain.to_str())


@frozen(eq=False)
class RememberingTemplate(ChatTemplate):
    """A template that renders the same messages once; its other variables are always the same."""

    known: dict[str, str | TemplateRefused] = field(factory=dict, repr=False)

    def render(self, variables: Mapping[str, Any], *, now: datetime) -> str:
        """Return what the template makes of `variables`, or raise what it raised."""
        key = repr((variables["messages"], variables["add_generation_prompt"]))
        found = self.known.get(key)
        if found is None:
            try:
                found = super().render(variables, now=now)
            except TemplateRefused as refused:
                found = refused
            self.known[key] = found
        if isinstance(found, TemplateRefused):
            raise TemplateRefused(*found.args)
        return found


@frozen(eq=False, kw_only=True)
class RememberingFamily(Family):
    """A family that encodes the same text once."""

    known: dict[str, list[int]] = field(factory=dict, repr=False)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`."""
        found = self.known.get(text)
        if found is None:
            if len(self.known) > REMEMBERED:
                self.known.clear()
            found = self.known[text] = super().encode(text)
        return found

    def forgetful(self) -> Self:
        """Return the family with nothing remembered, for another rendering."""
        template = self.templates["default"]
        assert isinstance(template, RememberingTemplate)  # noqa: S101  # made so below
        return evolve(self, templates={"default": evolve(template, known={})}, known={})

    def with_markers(self, texts: Iterable[str]) -> Self:
        """Return the family with the markers in rendered `texts` as tokens, too."""
        found = dict.fromkeys(marker for text in texts for marker in COMPOSED.findall(text))
        missing = [marker for marker in found if self.tokenizer.token_to_id(marker) is None]
        return evolve(self.with_special_tokens(missing), known={}) if missing else self

    def markers(self) -> frozenset[str]:
        """Return all named tokens."""
        return frozenset(token.content for token in self.tokenizer.get_added_tokens_decoder().values())


def family_of(entry: Entry) -> RememberingFamily:
    """Return a family of the template; raises `FolderError` if it does not compile."""
    source = Source(entry.text, f"{entry.name}.jinja")
    compiled = ChatTemplate.compile(source, LIMITS)
    tree = Sandbox(LIMITS).parse(entry.text)
    named = special_tokens(tree)
    tokens = [*dict.fromkeys((*literal_markers(tree), *named.values(), ODD))]
    tokenizer = Tokenizer.from_str(base())
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in tokens])
    return RememberingFamily(
        path=Path(entry.name),
        tokenizer=tokenizer,
        templates=MappingProxyType(
            {"default": RememberingTemplate(source, LIMITS, compiled._compiled)}  # noqa: SLF001  # compiled once
        ),
        special_tokens=MappingProxyType(named),
        stop_ids=(),
        clock=lambda: NOW,
    )


def literal_markers(tree: nodes.Template) -> list[str]:
    """Return what looks like a special token in the template's own texts."""
    texts = [node.data for node in tree.find_all(nodes.TemplateData)]
    texts += [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
    return [*dict.fromkeys(marker for text in texts for marker in MARKER.findall(text))]


def special_tokens(tree: nodes.Template) -> dict[str, str]:
    """Return a stand-in for each named token that the template reads: `bos_token` is `<bos>`."""
    names = sorted(name for name in undeclared(tree) if name.endswith("_token"))
    return {name: f"<{name.removesuffix('_token')}>" for name in names}


def undeclared(tree: nodes.Template) -> frozenset[str]:
    """Return the variables that the template does not set."""
    return frozenset(meta.find_undeclared_variables(tree))


def ids_of(family: Family, tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of named tokens, sorted."""
    found = (family.tokenizer.token_to_id(token) for token in tokens)
    return tuple(sorted(index for index in found if index is not None))
