"""The values of a lint report, and their JSON. The table and the page show these values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from tito_core import Reason
from tito_core.seams.case import TurnKind
from tito_core.seams.profile import Profile
from tito_io.families.family import Family

from .image_report import MediaReport, media_to_json

SWITCHES = ("enable_thinking", "thinking")
"""Names that templates have for the switch for thinking. Others are given with `--arg NAME=JSON`."""
LONGEST = 120
"""Characters of a token's text; longer ones are cut."""


class Verdict(Enum):
    """Whether a prompt can be made of ids after a turn."""

    EXACT = "exact"
    REFUSED = "refused"


@attrs.frozen
class Token:
    """An id and its text."""

    id: int
    text: str


def tokens(family: Family, ids: Sequence[int]) -> tuple[Token, ...]:
    """Return ids with their texts; for part of a character the vocabulary's name is the text."""
    result = []
    for index in ids:
        text = family.decode([index])
        if not text or "\ufffd" in text:
            text = family.tokenizer.id_to_token(index) or text
        result.append(Token(index, text if len(text) <= LONGEST else f"{text[:LONGEST]}..."))
    return tuple(result)


@attrs.frozen(kw_only=True)
class Divergence:
    """The first place where a fresh render of the next prompt differs from the ids in use.

    Attributes:
        at: Number of equal ids before it.
        before: The last of these.
        used: The ids in use from there on.
        rendered: The rendered ids from there on; empty if the render ends before.
        in_prompt: Whether it is before the sampled turn, so that the template changes its own text.
        dropped: Text in use that the render lacks, up to where both agree again.
        added: Text that the render has in its place.
        gone: How many ids of `used` are dropped.
        new: How many ids of `rendered` are added.
    """

    at: int
    before: tuple[Token, ...]
    used: tuple[Token, ...]
    rendered: tuple[Token, ...]
    in_prompt: bool
    dropped: str
    added: str
    gone: int
    new: int


@attrs.frozen(kw_only=True)
class Finding:
    """The finding for one case: a kind of turn, and the roles of the messages after it.

    Attributes:
        shape: The roles after the turn.
        kind: The turn.
        cut: Whether the turn was cut short.
        verdict: Whether the next prompt can be made of ids.
        reason: The name of the reason if it is refused.
        detail: What was seen then.
        mode: If it is exact, what the text after the turn depends on: `free` or `history`.
        history_rewritten: Whether a fresh render changes ids in use.
        divergence: Where it does.
        renders: How many renders the certificate took.
    """

    shape: tuple[str, ...]
    kind: TurnKind
    cut: bool
    verdict: Verdict
    reason: str = ""
    detail: str = ""
    mode: str = ""
    history_rewritten: bool = False
    divergence: Divergence | None = None
    renders: int = 0

    @property
    def after(self) -> str:
        """The turn in words."""
        return f"{self.kind.label}, cut short" if self.cut else self.kind.label

    @property
    def following(self) -> str:
        """The roles after it in words."""
        return " ".join(self.shape)

    @property
    def refused(self) -> bool:
        """Whether the next prompt cannot be made of ids."""
        return self.verdict is Verdict.REFUSED

    @property
    def rejected(self) -> bool:
        """Whether the template itself rejects such a conversation, also when it is sent as messages."""
        return self.reason == Reason.TEMPLATE_REFUSED.name


@attrs.frozen
class SeamPart:
    """A piece of a seam; its name is `close`, `opener`, `text`, `its close` or `generation prompt`."""

    name: str
    tokens: tuple[Token, ...]


AFTER_RESULT = "tool user"
"""The roles of a tool result and of a user message after it."""


@attrs.frozen(kw_only=True)
class DrawnSeam:
    """The text that the template writes between a sampled turn and the next one.

    Attributes:
        role: The role of the message between them, or the roles of two.
        parts: The pieces; what belongs to a second message is in `its close`.
    """

    role: str
    parts: tuple[SeamPart, ...]


@attrs.frozen(kw_only=True)
class LintRendering:
    """Whether a template is rendered with a tool, and its arguments."""

    tools: bool
    args: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def thinks(self) -> bool:
        """Whether no switch for thinking is off."""
        return not any(self.args.get(name) is False for name in SWITCHES)

    @property
    def label(self) -> str:
        """Its name.

        >>> LintRendering(tools=True, args={"enable_thinking": False}).label
        'with tools, enable_thinking=false'
        """
        args = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in self.args.items()]
        return ", ".join(["with tools" if self.tools else "without tools", *args])


@attrs.frozen(kw_only=True)
class Look:
    """The findings about a template with one rendering.

    Attributes:
        rendering: How it was rendered.
        profile: The certified cases.
        findings: What was found for each case.
        seams: What the template writes after a turn.
        facts: The profile's facts, and where the time of day is printed (`clock`).
        renders: How many renders it took.
        seconds: Processor time.
        opening: The text of the ids with which a conversation begins (`opening` of the facts).
    """

    rendering: LintRendering
    profile: Profile
    findings: tuple[Finding, ...]
    seams: tuple[DrawnSeam, ...]
    facts: Mapping[str, Any]
    renders: int
    seconds: float
    opening: str = ""


@attrs.frozen(kw_only=True)
class LintReport:
    """The findings about one template.

    Attributes:
        path: The PATH as it was given.
        template: The template's name in its folder, or its file.
        notes: What was changed in order to lint it, and renderings that it rejects.
        looks: One for each rendering, the usual rendering first.
        source: The file that holds it, if it could be loaded.
        error: Why it could not be linted.
        advice: What to know about it.
        stops: The stop ids, and whether each opens another role's message.
        suffix: What the template writes to close a turn.
        last_stop: Whether it writes a stop id at the end of a turn that nothing follows.
        lacking: Markers that were added because the vocabulary lacks them.
        words: The words that the template looks for in messages.
        media: What it does with images, audio and video; None if it could not be linted.
    """

    path: str
    template: str
    notes: tuple[str, ...] = ()
    looks: tuple[Look, ...] = ()
    source: str = ""
    error: str | None = None
    advice: tuple[str, ...] = ()
    stops: tuple[tuple[Token, bool], ...] = ()
    suffix: tuple[Token, ...] = ()
    last_stop: bool = False
    lacking: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    media: MediaReport | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all renderings."""
        return tuple(one for look in self.looks for one in look.findings)


def to_json(report: LintReport) -> dict[str, Any]:
    """Return a report as plain data."""
    return {
        "path": report.path,
        "template": report.template,
        "error": report.error,
        "notes": list(report.notes),
        "suffix": [token.id for token in report.suffix],
        "suffix_text": "".join(token.text for token in report.suffix),
        "stop_ids": [token.id for token, _ in report.stops],
        "stops": [{**attrs.asdict(token), "opens_next_role": opens} for token, opens in report.stops],
        "template_words": list(report.words),
        "renderings": [_look_to_json(look) for look in report.looks],
        "cases": [_finding_to_json(look, finding) for look in report.looks for finding in look.findings],
        "images": None if report.media is None else media_to_json(report.media),
        "advice": list(report.advice),
    }


def _look_to_json(look: Look) -> dict[str, Any]:
    return {
        "label": look.rendering.label,
        "tools": look.rendering.tools,
        "args": dict(look.rendering.args),
        "facts": {**look.facts, "follows": list(look.facts["follows"])},
        "seams": [attrs.asdict(seam) for seam in look.seams],
        "renders": look.renders,
        "seconds": round(look.seconds, 3),
    }


def _finding_to_json(look: Look, finding: Finding) -> dict[str, Any]:
    where = None
    if finding.divergence is not None:
        where = attrs.asdict(finding.divergence, filter=lambda field, _: field.name not in {"gone", "new"})
    return {
        "rendering": look.rendering.label,
        "shape": list(finding.shape),
        "after": finding.after,
        "kind": attrs.asdict(finding.kind),
        "truncated": finding.cut,
        "verdict": finding.verdict.value,
        "history_rewritten": finding.history_rewritten,
        "reason": finding.reason or None,
        "detail": finding.detail,
        "mode": finding.mode or None,
        "renders": finding.renders,
        "first_divergence": where,
    }
