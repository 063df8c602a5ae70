"""What was found out about one template, as values; whoever shows it reads it from here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs
from attrs import field, frozen

from tito_core import Profile, Reason
from tito_core.seams.case import TurnKind
from tito_io.families.family import Family

SWITCHES = ("enable_thinking", "thinking")
"""What templates call the switch for thinking. Another one is given by hand: `--arg NAME=VALUE`."""


class Verdict(Enum):
    """What becomes of a turn with what follows it."""

    EXACT = "exact"
    REFUSED = "refused"


@frozen
class Token:
    """An id and what it prints."""

    id: int
    text: str


@frozen(kw_only=True)
class Divergence:
    """The first place where the next prompt, rendered afresh, is not what was used."""

    at: int
    """How many ids are the same before it."""
    before: tuple[Token, ...]
    """The last of those."""
    used: tuple[Token, ...]
    """What stood there when the turn was sampled, and on."""
    rendered: tuple[Token, ...]
    """What the render has there; empty where the render ends inside of what was used."""
    in_prompt: bool
    """Whether it lies before the sampled turn: what the template wrote itself is written otherwise."""
    dropped: str
    """The text in use that the render lacks, up to where both agree again; what it was is seen from it."""
    added: str
    """The text that the render has in its place."""
    gone: int
    """How many of the ids in `used` are the dropped ones."""
    new: int
    """How many of the ids in `rendered` are the added ones."""


@frozen(kw_only=True)
class Finding:
    """One kind of turn before one shape of environment."""

    shape: tuple[str, ...]
    kind: TurnKind
    cut: bool
    """Whether the turn was cut short."""
    verdict: Verdict
    reason: str = ""
    """The name of the reason where it is refused."""
    detail: str = ""
    mode: str = ""
    """What the tail depends on where it is exact: `free` or `history`."""
    history_rewritten: bool = False
    divergence: Divergence | None = None
    renders: int = 0

    @property
    def after(self) -> str:
        """What precedes, in words."""
        label = self.kind.label
        return f"{label}, cut short" if self.cut else label

    @property
    def following(self) -> str:
        """What follows, in words."""
        return " ".join(self.shape)

    @property
    def refused(self) -> bool:
        """Whether it cannot go by ids."""
        return self.verdict is Verdict.REFUSED

    @property
    def rejected(self) -> bool:
        """Whether the template itself rejects such a conversation, by messages too."""
        return self.reason == Reason.TEMPLATE_REFUSED.name


@frozen
class SeamPart:
    """A piece of the seam."""

    name: str
    """`close`, `opener`, `text`, `its close` or `generation prompt`."""
    tokens: tuple[Token, ...]


@frozen(kw_only=True)
class Drawn:
    """What the template writes after a sampled turn, in pieces."""

    role: str
    parts: tuple[SeamPart, ...]


@frozen(kw_only=True)
class RenderingReport:
    """What a template is rendered with beside messages."""

    tools: bool
    args: Mapping[str, Any] = field(factory=dict)

    @property
    def thinks(self) -> bool:
        """Whether no switch for thinking is off."""
        return not any(self.args.get(name) is False for name in SWITCHES)

    @property
    def label(self) -> str:
        """What it is called.

        >>> RenderingReport(tools=True, args={"enable_thinking": False}).label
        'with tools, enable_thinking=false'
        """
        told = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.args.items()]
        return ", ".join(["with tools" if self.tools else "without tools", *told])


@frozen(kw_only=True)
class Look:
    """A template with one rendering."""

    rendering: RenderingReport
    profile: Profile
    findings: tuple[Finding, ...]
    seams: tuple[Drawn, ...]
    facts: Mapping[str, Any]
    renders: int
    seconds: float
    """Processor time."""


@frozen(kw_only=True)
class LintReport:
    """A template, looked into as far as it went."""

    path: str
    template: str
    notes: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()
    """The rendering to show first; then the others."""
    error: str | None = None
    """Why it could not be linted."""
    advice: tuple[str, ...] = ()
    stops: tuple[tuple[Token, bool], ...] = field(default=())
    """The stop ids, and whether each opens another role's message."""
    suffix: tuple[Token, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of all renderings."""
        return tuple(one for look in self.looks for one in look.findings)


def data(report: LintReport) -> dict[str, Any]:
    """Return a report as plain data."""
    return {
        "path": report.path,
        "template": report.template,
        "error": report.error,
        "notes": list(report.notes),
        "suffix": [token.id for token in report.suffix],
        "suffix_text": "".join(token.text for token in report.suffix),
        "stop_ids": [token.id for token, _ in report.stops],
        "stops": [
            {"id": token.id, "text": token.text, "opens_next_role": opens} for token, opens in report.stops
        ],
        "renderings": [_rendering(look) for look in report.looks],
        "cases": [_case(look, finding) for look in report.looks for finding in look.findings],
        "advice": list(report.advice),
    }


def _rendering(look: Look) -> dict[str, Any]:
    return {
        "label": look.rendering.label,
        "tools": look.rendering.tools,
        "args": dict(look.rendering.args),
        "facts": {**look.facts, "follows": list(look.facts["follows"])},
        "seams": [
            {
                "role": seam.role,
                "parts": [{"name": part.name, "tokens": _tokens(part.tokens)} for part in seam.parts],
            }
            for seam in look.seams
        ],
        "renders": look.renders,
        "seconds": round(look.seconds, 3),
    }


def _case(look: Look, found: Finding) -> dict[str, Any]:
    return {
        "rendering": look.rendering.label,
        "shape": list(found.shape),
        "after": found.after,
        "kind": attrs.asdict(found.kind),
        "truncated": found.cut,
        "verdict": found.verdict.value,
        "history_rewritten": found.history_rewritten,
        "reason": found.reason or None,
        "detail": found.detail,
        "mode": found.mode or None,
        "renders": found.renders,
        "first_divergence": None if found.divergence is None else _divergence(found.divergence),
    }


def _divergence(where: Divergence) -> dict[str, Any]:
    return {
        "at": where.at,
        "in_prompt": where.in_prompt,
        "before": _tokens(where.before),
        "used": _tokens(where.used),
        "rendered": _tokens(where.rendered),
        "dropped": where.dropped,
        "added": where.added,
    }


def _tokens(tokens: tuple[Token, ...]) -> list[dict[str, Any]]:
    return [{"id": token.id, "text": token.text} for token in tokens]


LONGEST = 120
"""No token that a person should read is longer."""


def tokens(family: Family, ids: Sequence[int]) -> tuple[Token, ...]:
    """Return ids with what each prints; half a character prints as the vocabulary's own name for it."""
    return tuple(Token(index, _text(family, index)) for index in ids)


def _text(family: Family, index: int) -> str:
    text = family.decode([index])
    broken = not text or "\ufffd" in text
    named = family.tokenizer.id_to_token(index) if broken else None
    shown = text if named is None else named
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
