"""Compare two templates: what changes in their seams, in what can be continued, and in histories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from tito_core import Reason

from .advice import FOLLOWING, quoted, rewritten, several
from .report import DrawnSeam, Finding, LintReport, Look, Token


@attrs.frozen
class Difference:
    """One thing that two templates do differently.

    Attributes:
        what: `rendering`, `close`, `seam`, `verdict`, `history`, `fact` or `images`.
        where: In which rendering and in which cases.
        one: What the first template does.
        two: What the second template does.
    """

    what: str
    where: str
    one: str
    two: str

    def __str__(self) -> str:
        return f"{self.what}: {self.where}: {self.one} -> {self.two}"


def differences(one: LintReport, two: LintReport) -> tuple[Difference, ...]:
    """Return what two linted templates do differently, the same change in several renderings once."""
    found = []
    if one.suffix != two.suffix:
        found.append(Difference("close", "after each turn", _text(one.suffix), _text(two.suffix)))
    looks, others = ({look.rendering.label: look for look in report.looks} for report in (one, two))
    for label in dict.fromkeys((*looks, *others)):
        if label in looks and label in others:
            found += _in_rendering(label, looks[label], others[label])
        else:
            found.append(Difference("rendering", label, _exists(label, looks), _exists(label, others)))
    return (*_merged(found), *_images(one, two))


def _images(one: LintReport, two: LintReport) -> Iterator[Difference]:
    """Yield what changes for images, audio and video, by what the lines are about."""
    lines, others = (
        dict(line.split(": ", 1) for line in report.media.lines) if report.media else {}
        for report in (one, two)
    )
    for name in dict.fromkeys((*lines, *others)):
        if lines.get(name) != others.get(name):
            yield Difference("images", name, lines.get(name, "not tried"), others.get(name, "not tried"))


def _exists(label: str, looks: Mapping[str, Look]) -> str:
    return "differs from the usual one" if label in looks else "is the same or is rejected"


def _text(tokens: tuple[Token, ...]) -> str:
    return quoted("".join(token.text for token in tokens)) if tokens else "nothing"


def _in_rendering(label: str, one: Look, two: Look) -> Iterator[Difference]:
    yield from _seams(label, one, two)
    yield from _cases(label, one, two)
    for name in dict.fromkeys((*one.facts, *two.facts)):
        if one.facts.get(name) != two.facts.get(name):
            yield Difference("fact", f"{label}: {name}", f"{one.facts.get(name)}", f"{two.facts.get(name)}")


def _seams(label: str, one: Look, two: Look) -> Iterator[Difference]:
    seams, others = ({seam.role: _parts(seam) for seam in look.seams} for look in (one, two))
    for role in dict.fromkeys((*seams, *others)):
        where = f"{label}: before {FOLLOWING[role]}"
        if role not in seams or role not in others:
            yield Difference("seam", where, _shown(one, role, seams), _shown(two, role, others))
            continue
        known, other = seams[role], others[role]
        for name in dict.fromkeys((*known, *other)):
            if known.get(name) != other.get(name):
                place = f"{where}: {name}"
                yield Difference("seam", place, known.get(name, "nothing"), other.get(name, "nothing"))


def _shown(look: Look, role: str, seams: Mapping[str, Mapping[str, str]]) -> str:
    """Return the parts of a seam; if it could not be drawn, why."""
    if role in seams:
        return " ".join(seams[role].values())
    reasons = {one.reason for one in look.findings if one.following == role and one.refused}
    if Reason.TEMPLATE_REFUSED.name in reasons:
        return "not shown: the template rejects the probe"
    return f"not shown: refused, {min(reasons)}" if reasons else "not shown"


def _parts(seam: DrawnSeam) -> dict[str, str]:
    """Return the texts of a seam's parts; the message's own text is not the template's."""
    return {part.name: _text(part.tokens) for part in seam.parts if part.name != "text"}


def _cases(label: str, one: Look, two: Look) -> Iterator[Difference]:
    """Yield what changes in verdicts and histories, the cases with the same change together."""
    others = {(finding.kind, finding.shape, finding.cut): finding for finding in two.findings}
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in one.findings:
        other = others.get((finding.kind, finding.shape, finding.cut))
        if other is None:
            continue
        for what, described in (("verdict", _verdict), ("history", _history)):
            if described(finding) != described(other):
                groups.setdefault((what, described(finding), described(other)), []).append(finding)
    for (what, before, after), findings in groups.items():
        yield Difference(what, f"{label}: {several(findings)}", before, after)


def _verdict(finding: Finding) -> str:
    return f"refused, {finding.reason}" if finding.refused else "exact"


def _history(finding: Finding) -> str:
    where = finding.divergence
    return "a fresh render keeps it" if where is None else f"a fresh render {rewritten(where)}"


def _merged(found: list[Difference]) -> tuple[Difference, ...]:
    """Leave out a change that an earlier rendering has in the same place."""
    kept: dict[tuple[str, ...], Difference] = {}
    for one in found:
        place = one.where.partition(": ")[2]
        kept.setdefault((one.what, place or one.where, one.one, one.two), one)
    return tuple(kept.values())
