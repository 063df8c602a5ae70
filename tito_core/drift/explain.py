"""Explain each difference: undo possible causes one by one, judge the rest by its text, group the results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import attrs

from ..normalization.compare import same
from ..normalization.receipts import OPTIONAL
from .breaks import SAMPLED, Cause
from .cause import Evidence, Finding, find_causes
from .diff import Hunk
from .media import media_detail
from .place import HunkPlace, message_of
from .renderings import ComparedRendering, PromptRenderings

DETAILS = {
    Cause.RENDERING: "this family renders the prompt differently from what was sent",
    Cause.TOOLS: "with the tools and arguments of the turn before there would be no such difference",
}
NEAR = 16
"""Ids that may agree between two hunks of one break."""


def explain(
    renderings: PromptRenderings, rendering: ComparedRendering, hunk: Hunk, place: HunkPlace
) -> tuple[Finding, ...]:
    """Return the causes of a hunk of `rendering`, in the order of `Cause`."""
    detail = media_detail(renderings.renderer, rendering.used, rendering.rendered, hunk)
    if detail is not None:
        return ((Cause.MEDIA, detail), *_undone(renderings, rendering, hunk)[0])
    if renderings.predecessor is None and not place.sampled:
        if renderings.text_difference(rendering, hunk).same:
            return ((Cause.RETOKENIZED, "the same text"),)
        return ((Cause.RENDERING, DETAILS[Cause.RENDERING]),)
    findings, left = _undone(renderings, rendering, hunk)
    return findings if left is None else (*findings, *_causes_by_text(renderings, *left, place))


def _undone(
    renderings: PromptRenderings, rendering: ComparedRendering, hunk: Hunk
) -> tuple[tuple[Finding, ...], tuple[ComparedRendering, Hunk] | None]:
    """Return the causes that are shown by undoing them, and what differs then; None if nothing does."""
    findings: list[Finding] = []
    for cause, undone in renderings.undone.items():
        rest = undone.first_overlap(hunk)
        # The cause holds where the difference is gone, or another one, once the cause is undone.
        if rest is None or undone.identity(rest) != rendering.identity(hunk):
            detail = DETAILS.get(cause) or edit_detail(renderings.unedited, renderings.prompt)
            findings.append((cause, detail))
        if rest is None:
            return tuple(findings), None
        rendering, hunk = undone, rest
    return tuple(findings), (rendering, hunk)


def _causes_by_text(
    renderings: PromptRenderings, rendering: ComparedRendering, hunk: Hunk, place: HunkPlace
) -> tuple[Finding, ...]:
    markers = renderings.renderer.markers
    difference = renderings.text_difference(rendering, _before_stop(rendering, hunk, place, markers))
    evidence = Evidence(
        part=place.part,
        used=difference.used,
        rendered=difference.rendered,
        respelled=difference.respelled,
        cut=place.cut,
        seam=place.seam,
        message=message_of(place.turn),
    )
    if place.turn is not None and place.part in SAMPLED and not difference.same:
        evidence = attrs.evolve(evidence, verbatim=renderings.restates_verbatim(place.turn, hunk))
    return find_causes(evidence)


def _before_stop(
    rendering: ComparedRendering, hunk: Hunk, place: HunkPlace, markers: Collection[int]
) -> Hunk:
    """Return the hunk without the stop and the close, where text before them differs too."""
    if not place.seam or not hunk.start < place.stop < hunk.stop:
        return hunk
    closes = [at for at in range(hunk.begin, hunk.end) if rendering.rendered[at] in markers]
    return attrs.evolve(hunk, stop=place.stop, end=closes[-1] if closes else hunk.end)


def edit_detail(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> str:
    r"""Return which message changed, and whether more than its spelling did.

    >>> edit_detail([{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}])
    'message 0 (user) says something else'
    >>> edit_detail([{"role": "assistant", "content": "a\n"}], [{"role": "assistant", "content": "a"}])
    'message 0 (assistant) differs: outer whitespace'
    """
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            forgiven = same(old, new, OPTIONAL)
            names = ", ".join(sorted(one.name.lower().replace("_", " ") for one in forgiven or ()))
            change = f"differs: {names}" if names else "says something else"
            return f"message {index} ({new['role']}) {change}"
    return "the messages changed"


@attrs.frozen
class ExplainedHunk:
    """A hunk, where it lies, why it differs, and how many sampled ids it changes."""

    hunk: Hunk
    place: HunkPlace
    findings: tuple[Finding, ...]
    sampled: int

    def continues(self, earlier: ExplainedHunk) -> bool:
        """Return whether this hunk is close after another one of the same part, turn and causes."""
        alike = self.place.owner is earlier.place.owner and self.place.part is earlier.place.part
        causes = [cause for cause, _ in self.findings] == [cause for cause, _ in earlier.findings]
        return alike and causes and self.hunk.start - earlier.hunk.stop < NEAR


def group(hunks: Iterable[ExplainedHunk]) -> Iterator[ExplainedHunk]:
    """Group adjacent hunks: a spelling that changes again and again is one break, not one per token."""
    grouped: ExplainedHunk | None = None
    for one in hunks:
        if grouped is None:
            grouped = one
        elif one.continues(grouped):
            first = grouped.hunk
            hunk = Hunk(first.start, one.hunk.stop, first.begin, one.hunk.end)
            grouped = attrs.evolve(grouped, hunk=hunk, sampled=grouped.sampled + one.sampled)
        else:
            yield grouped
            grouped = one
    if grouped is not None:
        yield grouped
