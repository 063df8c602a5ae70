"""Cases in words, and one sentence of advice for each thing that somebody should know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tito_core import Reason
from tito_io.cli.errors import visible

from .report import Divergence, Finding, LintReport, Look

FOLLOWING = {
    "user": "a user message",
    "user+": "several user messages",
    "system": "a system message",
    "system user": "a system and a user message",
    "assistant user": "an assistant and a user message",
    "tool": "a tool result",
    "tool+": "several tool results",
    "tool user": "a tool result and a user message",
    "tool+ user": "several tool results and a user message",
    "tool system": "a tool result and a system message",
}
TURNS = {
    (0, False): "plain",
    (0, True): "reasoning",
    (1, False): "a call",
    (1, True): "reasoning, a call",
    (2, False): "calls",
    (2, True): "reasoning, calls",
}
CUT = "cut short"
COLUMNS = (*TURNS.values(), CUT)
LONGEST = 60
HELPS = {
    Reason.ODD_STOP.name: "check the stop ids (--stop-id), or let the policy keep or replace the stop",
    Reason.TEMPLATE_REFUSED.name: "the template rejects such a conversation, by messages too",
}
BY_MESSAGES = "TITO falls back to messages"


def column(finding: Finding) -> str:
    """Return what precedes, a tool loop before it left out."""
    return CUT if finding.cut else TURNS[finding.kind.calls, finding.kind.reasoning]


def rewritten(where: Divergence) -> str:
    """Say what a render does to what was used."""
    gone, new = quoted(where.dropped), quoted(where.added)
    if where.dropped == where.added:
        return f"spells {gone} with other ids"
    if not where.added:
        return f"drops {gone}"
    return f"writes {new} in the place of {gone}" if where.dropped else f"adds {new}"


def quoted(text: str) -> str:
    """Return a short text in quotes, its white space in sight."""
    shown = visible(text)
    return f"`{shown if len(shown) <= LONGEST else shown[:LONGEST] + '...'}`"


def situation(finding: Finding) -> str:
    """Name a case in words."""
    label = finding.kind.label
    turn = f"a {label}" if label.startswith("plain") else label
    turn = turn.replace("a plain", "a plain answer") if label.startswith("plain") else turn
    turn = turn.replace("reasoning", "a reasoning turn", 1) if not finding.kind.calls else turn
    cut = ", cut short" if finding.cut else ""
    return f"{FOLLOWING.get(finding.following, finding.following)} after {turn}{cut}"


def several(found: Sequence[Finding]) -> str:
    """Name cases by the first of them."""
    more = len(found) - 1
    return situation(found[0]) + (f" (and {more} more case{'s' * (more > 1)})" if more else "")


def grouped(pairs: Iterable[tuple[str, Finding]]) -> dict[str, list[Finding]]:
    """Put findings with one text together, in the order in which the texts come."""
    found: dict[str, list[Finding]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found


def drifts(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return the findings whose history is rewritten, by what happens to it."""
    return grouped((rewritten(one.divergence), one) for one in findings if one.divergence is not None)


def refusals(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return the findings that are refused, by their reason."""
    return grouped((one.reason, one) for one in findings if one.refused)


def advice(report: LintReport) -> tuple[str, ...]:
    """Return what to know, the dearest first."""
    look = report.looks[0]
    said = (*_refusals(report), *_stops(report), *_drifts(report), *_facts(look), *_renderings(report))
    return tuple(_sentence(one) for one in dict.fromkeys(said))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


def _refusals(report: LintReport) -> Iterator[str]:
    """Say why cases are refused, and what would help."""
    for reason, found in refusals(report.findings).items():
        told = f" ({found[0].detail})" if found[0].detail and not found[0].rejected else ""
        yield f"{several(found)} is refused, {reason}{told}: {HELPS.get(reason, BY_MESSAGES)}"


def _drifts(report: LintReport) -> Iterator[str]:
    """Say where a history that is rendered again is not what was sampled."""
    for told, found in drifts(report.findings).items():
        keeps = "TITO is refused here too" if all(one.refused for one in found) else "TITO keeps it"
        yield f"{several(found)} {told}: MITO will drift here; {keeps}"


def _stops(report: LintReport) -> Iterator[str]:
    ends = {token.id for token, _ in report.stops}
    if not ends:
        yield "no stop ids are known: give those that end its turns, --stop-id ID or --stop-id TOKEN"
    elif report.suffix and report.suffix[0].id not in ends:
        close = quoted(report.suffix[0].text)
        yield f"turns are closed with {close}, which is no stop id: is it missing in generation_config.json?"


def _facts(look: Look) -> Iterator[str]:
    facts = look.facts
    if facts["random"]:
        yield "the same question has two answers: nothing about this template can be relied on"
    if facts["clock"] is not None:
        yield f"it prints the time of day {facts['clock']}: what is sent by messages differs from day to day"
    if facts["arguments"] in {"object", "text"}:
        wanted = {"object": "an object", "text": "a text"}[facts["arguments"]]
        other = {"object": "a JSON text, as clients send it,", "text": "an object"}[facts["arguments"]]
        yield f"it takes a call's arguments as {wanted}; {other} is refused or written otherwise"
    if "differs" in {facts["null_content"], facts["absent_content"]}:
        yield "a null or missing content beside tool calls is written otherwise than an empty one"


def _renderings(report: LintReport) -> Iterator[str]:
    """Say where another rendering behaves otherwise, and what changes nothing."""
    if all(look.rendering.tools for look in report.looks):
        yield "it is the same with tools and without: it writes nothing of them"
    known = {_name(one): _told(one) for one in report.looks[0].findings}
    for look in report.looks[1:]:
        found = [one for one in look.findings if known.get(_name(one), _told(one)) != _told(one)]
        if found:
            yield f"rendered {look.rendering.label} it behaves differently: {several(found)}"


def _name(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.shape, finding.cut


def _told(finding: Finding) -> tuple[object, ...]:
    where = finding.divergence
    return finding.verdict, finding.reason, None if where is None else rewritten(where)
