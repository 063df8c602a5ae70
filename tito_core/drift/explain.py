"""Why a place differs: what may have changed is undone, one after another; what is left goes by its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..normalization.compare import same
from ..normalization.receipts import OPTIONAL
from .breaks import SAMPLED, Cause
from .cause import Evidence, Found, causes
from .diff import Hunk
from .place import HunkPlace, said
from .view import View, Views

LAYERS = {
    Cause.RENDERING: "this family renders the prompt otherwise than it was sent",
    Cause.TOOLS: "with the tools and arguments of the turn before it would not differ so",
}


@attrs.frozen
class Left:
    """What still differs once other causes are undone."""

    view: View
    hunk: Hunk


def explained(views: Views, view: View, hunk: Hunk, place: HunkPlace) -> tuple[Found, ...]:
    """Return the causes that hold for a place, in their order, each with a word about it."""
    if views.follow is None and not place.sampled:
        spelled = views.differing(view, hunk).same
        return (
            ((Cause.RETOKENIZED, "the same text"),)
            if spelled
            else ((Cause.RENDERING, LAYERS[Cause.RENDERING]),)
        )
    found, left = _undone(views, Left(view, hunk))
    return (*found, *(_by_text(views, left, place) if left is not None else ()))


def _undone(views: Views, left: Left) -> tuple[list[Found], Left | None]:
    """Return what made a difference, and what still differs without it."""
    found: list[Found] = []
    for cause, view in views.layers():
        if view is None:
            continue
        rest = view.over(left.hunk)
        if rest is None or view.piece(rest) != left.view.piece(left.hunk):
            found.append((cause, LAYERS.get(cause) or edited(views.told, views.prompt)))
        if rest is None:
            return found, None
        left = Left(view, rest)
    return found, left


def _by_text(views: Views, left: Left, place: HunkPlace) -> tuple[Found, ...]:
    seen = views.differing(left.view, _before_stop(views, left, place))
    evidence = Evidence(
        part=place.part,
        used=seen.used,
        rendered=seen.rendered,
        respelled=seen.respelled,
        cut=place.cut,
        seam=place.seam,
        message=said(place.turn),
    )
    if place.turn is None or place.part not in SAMPLED or seen.same:
        return causes(evidence)
    return causes(attrs.evolve(evidence, verbatim=views.verbatim(place.turn, left.hunk)))


def _before_stop(views: Views, left: Left, place: HunkPlace) -> Hunk:
    """Return the place without the stop and the close, where text before them differs too."""
    hunk, markers = left.hunk, views.renderer.markers
    if not place.seam or not hunk.start < place.stop < hunk.stop:
        return hunk
    closes = [at for at in range(hunk.begin, hunk.end) if left.view.rendered[at] in markers]
    return attrs.evolve(hunk, stop=place.stop, end=closes[-1] if closes else hunk.end)


def edited(told: Sequence[dict[str, Any]], prompt: Sequence[dict[str, Any]]) -> str:
    r"""Say which message changed, and whether more than its spelling did.

    >>> edited([{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}])
    'message 0 (user) says something else'
    >>> edited([{"role": "assistant", "content": "a\n"}], [{"role": "assistant", "content": "a"}])
    'message 0 (assistant) differs: trailing whitespace'
    """
    pairs = zip(told, prompt, strict=False)
    place = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    if place is None:
        return "the messages changed"
    ours, theirs = told[place], prompt[place]
    forgiven = same(ours, theirs, OPTIONAL)
    names = ", ".join(sorted(one.name.lower().replace("_", " ") for one in forgiven or ()))
    return f"message {place} ({theirs['role']}) " + (f"differs: {names}" if names else "says something else")
