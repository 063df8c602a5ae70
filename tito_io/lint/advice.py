"""Describe cases in words, and write one piece of advice for each thing to know about a template."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from attrs import frozen

from tito_core import Reason
from tito_io.cli.errors import visible

from .image_report import NUMBERED, REFUSED
from .report import AFTER_RESULT, Divergence, Finding, LintReport, Look
from .subject import markers

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
"""Characters of a quotation."""
HELP = {
    Reason.ODD_STOP.name: "Check the stop ids (--stop-id), or let the policy keep or replace the stop",
    Reason.TEMPLATE_REFUSED.name: "The template rejects such a conversation, also if sent as messages",
}
NO_STOP_IDS = "NO_STOP_IDS"
CLOSE_NOT_A_STOP = "CLOSE_NOT_A_STOP"
OPENER_NOT_A_STOP = "OPENER_NOT_A_STOP"
MARKER_NOT_IN_VOCABULARY = "MARKER_NOT_IN_VOCABULARY"
WARNINGS = {
    NO_STOP_IDS: "No stop ids are known",
    CLOSE_NOT_A_STOP: "Turns are closed with a token that is not a stop id",
    OPENER_NOT_A_STOP: "Turns are not closed, and no opener of a message is a stop id",
    MARKER_NOT_IN_VOCABULARY: "The template writes a marker that is not a token of the vocabulary",
}
"""Advice that has a name of its own, because prompts are wrong or turns do not end; it fails no check."""
SHOWN = 12
"""Markers that a warning names."""
BY_MESSAGES = "TITO falls back to messages here"


@frozen
class Warned:
    """Advice with a name.

    Attributes:
        rule: A name of `WARNINGS`.
        text: What was found.
    """

    rule: str
    text: str


def column(finding: Finding) -> str:
    """Return the column of a finding: what the turn is, whether or not it is in a tool loop."""
    return CUT if finding.cut else TURNS[finding.kind.calls, finding.kind.reasoning]


def rewritten(where: Divergence) -> str:
    """Return what a fresh render does to the ids in use."""
    dropped, added = quoted(where.dropped), quoted(where.added)
    if where.dropped == where.added:
        return f"writes {dropped} with other ids"
    if not where.added:
        return f"drops {dropped}"
    return f"replaces {dropped} by {added}" if where.dropped else f"adds {added}"


def quoted(text: str) -> str:
    """Return a short text in backticks with its white space visible."""
    shown = visible(text)
    return f"`{shown if len(shown) <= LONGEST else shown[:LONGEST] + '...'}`"


def situation(finding: Finding) -> str:
    """Return a case in words, such as `a user message after a plain answer`."""
    label = finding.kind.label
    turn = f"a {label}" if label.startswith("plain") else label
    turn = turn.replace("a plain", "a plain answer") if label.startswith("plain") else turn
    turn = turn.replace("reasoning", "a reasoning turn", 1) if not finding.kind.calls else turn
    cut = ", cut short" if finding.cut else ""
    return f"{FOLLOWING.get(finding.following, finding.following)} after {turn}{cut}"


def several(findings: Sequence[Finding]) -> str:
    """Return the first of some cases in words, and the number of the others."""
    more = len(findings) - 1
    return situation(findings[0]) + (f" (and {more} more case{'s' * (more > 1)})" if more else "")


def drifts(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Return the findings whose history is rewritten, by what a fresh render does to it."""
    return _grouped((rewritten(one.divergence), one) for one in findings if one.divergence is not None)


def _grouped(pairs: Iterable[tuple[str, Finding]]) -> dict[str, list[Finding]]:
    """Return findings by their text, in the order of the first of each."""
    groups: dict[str, list[Finding]] = {}
    for key, finding in pairs:
        groups.setdefault(key, []).append(finding)
    return groups


def advice(report: LintReport) -> tuple[str, ...]:
    """Return what to know about a template: refusals first, then drift, stops, facts and renderings."""
    pieces = chain(
        *(_refusals(report), (one.text for one in warnings(report)), _drifts(report), _fused(report)),
        *(_facts(report.looks[0]), _words(report), _renderings(report), _images(report)),
    )
    sentences = (f"{text[0].upper()}{text[1:]}" for text in dict.fromkeys(pieces))
    return tuple(text if text.endswith("?") else f"{text}." for text in sentences)


def _refusals(report: LintReport) -> Iterator[str]:
    """Yield why cases are refused, and what helps."""
    refused = _grouped((_why(one), one) for one in report.findings if one.refused)
    for why, findings in refused.items():
        yield f"{several(findings)}: refused, {why}. {HELP.get(findings[0].reason, BY_MESSAGES)}"


def _why(finding: Finding) -> str:
    """Return why a case is refused: the reason, and what was seen, such as where the tail differs."""
    detail = f" ({finding.detail})" if finding.detail and not finding.rejected else ""
    return f"{finding.reason}{detail}"


def _drifts(report: LintReport) -> Iterator[str]:
    """Yield where a fresh render differs from what was sampled."""
    for change, findings in drifts(report.findings).items():
        refused = all(one.refused for one in findings)
        outcome = "TITO is refused here, too" if refused else "TITO keeps the sampled ids"
        yield f"{several(findings)}: a fresh render {change}. MITO will drift here. {outcome}"


def warnings(report: LintReport) -> Iterator[Warned]:
    """Yield what makes sampled ids useless although no case is refused: wrong stops, and unknown markers."""
    ends = {token.id for token, _ in report.stops}
    if not ends:
        text = "no stop ids are known. Name those that end a turn: --stop-id ID or --stop-id TOKEN"
        yield Warned(NO_STOP_IDS, text)
    elif report.suffix and report.suffix[0].id not in ends and not report.last_stop:
        close = quoted(report.suffix[0].text)
        text = f"turns are closed with {close}, which is not a stop id. Does generation_config.json lack it?"
        yield Warned(CLOSE_NOT_A_STOP, text)
    elif not report.suffix and ends.isdisjoint(openers := _openers(report)):  # GLM-4.5 without its stops
        text = "the template closes no turn: the opener of the next message ends it. Give those at which the"
        shown = ", ".join(map(quoted, openers.values()))
        yield Warned(OPENER_NOT_A_STOP, f"{text} engine stops, with --stop-id or in the folder: {shown}")
    spelled = list(dict.fromkeys(chain(report.lacking, _spelled(report))))
    if spelled:
        shown = ", ".join(map(quoted, spelled[:SHOWN])) + (" ..." if len(spelled) > SHOWN else "")
        yield Warned(
            MARKER_NOT_IN_VOCABULARY, f"the vocabulary has no token {shown}, which the template writes"
        )


def _openers(report: LintReport) -> dict[int, str]:
    """Return the first token of what the template writes after a turn, for each role, by its id."""
    first = (
        part.tokens[0]
        for look in report.looks
        for seam in look.seams
        for part in seam.parts[:1]
        if part.tokens
    )
    return {token.id: token.text for token in first}


def _spelled(report: LintReport) -> Iterator[str]:
    """Yield the markers between turns that are written with several tokens."""
    for seam in (seam for look in report.looks for seam in look.seams):
        texts = [token.text for part in seam.parts for token in part.tokens]
        yield from (one for one in markers("".join(texts)) if not any(one in text for text in texts))


def _fused(report: LintReport) -> Iterator[str]:
    """Yield that a user message after a tool result lacks a close that it has after other turns."""
    drawn = {seam.role: seam.parts for seam in report.looks[0].seams}
    shown = report.suffix and report.suffix[0].text.strip()  # a line end alone closes nothing
    if shown and "user" in drawn and AFTER_RESULT in drawn:
        close = report.suffix[0]
        counts = {role: sum(part.tokens.count(close) for part in parts) for role, parts in drawn.items()}
        if counts[AFTER_RESULT] < counts["user"]:
            text = "a user message after a tool result follows without"
            yield f"{text} {quoted(close.text)}: the model reads it as part of the turn before"


def _facts(look: Look) -> Iterator[str]:
    facts = look.facts
    if facts["random"]:
        yield "the same messages are rendered differently each time. No result for this template is reliable"
    if facts["clock"] is not None:
        place = facts["clock"]
        yield f"the template prints the time of day {place}. Prompts sent as messages change from day to day"
    if facts["arguments"] == "object":
        yield "the template expects a call's arguments as an object. It rejects a JSON text or changes it"
    if facts["arguments"] == "text":
        yield "the template expects a call's arguments as a JSON text. It rejects an object or changes it"
    bare = {facts["null_content"], facts["absent_content"]}
    if "differs" in bare:
        yield "a null or missing content beside tool calls is written differently from an empty one"
    if "refused" in bare:
        yield "the template rejects a null or missing content beside tool calls. Send an empty text there"


def _words(report: LintReport) -> Iterator[str]:
    """Yield which words the template looks for in messages: it may remember that they were said."""
    if report.words:
        shown = ", ".join(map(quoted, report.words[:SHOWN])) + (" ..." if len(report.words) > SHOWN else "")
        text = f"the template looks for {shown} in messages"
        yield f"{text}. A bare tokenize function must give `template_words`"


def _renderings(report: LintReport) -> Iterator[str]:
    """Yield which other rendering behaves differently, and that tools change nothing."""
    if all(look.rendering.tools for look in report.looks):
        yield "the template is rendered the same with and without tools. It does not write tools"
    known = dict(map(_outcome, report.looks[0].findings))
    for look in report.looks[1:]:
        outcomes = ((one, *_outcome(one)) for one in look.findings)
        changed = [one for one, case, outcome in outcomes if known.get(case, outcome) != outcome]
        if changed:
            yield f"rendered {look.rendering.label}, the template behaves differently: {several(changed)}"


def _images(report: LintReport) -> Iterator[str]:
    """Yield where images go by messages although the template writes them."""
    media = report.media
    if media is None or not media.written:
        return
    if media.numbered:
        yield NUMBERED
    yield from (f"{one}. Such a prompt goes by messages" for one in media.cases if one.verdict == REFUSED)


def _outcome(finding: Finding) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """Return the case of a finding, and what came out for it."""
    where = finding.divergence
    outcome = (finding.verdict, finding.reason, None if where is None else rewritten(where))
    return (finding.kind, finding.shape, finding.cut), outcome
