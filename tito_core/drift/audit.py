"""Drift explained: each prompt as messages would have rendered it, against the ids that were really there.

A prompt that goes on from a call by ids is compared with its own ids: what the engine saw. One that goes on
by messages alone is compared with the ids of the turn that it restates: what the engine would have seen. A
place is reported once, at the first prompt that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from ..errors import TemplateRefused
from ..samples.forest import Forest
from ..samples.predecessor import By, Follow, followed
from ..samples.trie import common
from .breaks import EITHER_SIDE, SHOWN, Break, BreakText
from .counters import DriftCounters
from .diff import Hunk, Packed, packed
from .explain import explained
from .grouped_breaks import ExplainedHunk, joined
from .merge_loss import survival
from .place import placed
from .region import regions
from .tally import Tally
from .view import Renderer, View, Views, compared


@attrs.frozen(kw_only=True)
class Audited:
    """What became of a conversation."""

    breaks: tuple[Break, ...]
    """By the walk: a turn before those that go on from it."""
    tally: Tally


@attrs.frozen
class Seen:
    """A call's prompt as messages render it, and where its own ids differ from that."""

    rendered: Packed
    hunks: Sequence[Hunk] = ()


def audit(forest: Forest, renderer: Renderer, *, name: str = "", block: int = 16) -> Audited:
    """Compare each prompt of a conversation with what messages would have made of it.

    `block` is how many ids a block of the engine's prefix cache has. Each prompt is rendered once, and the
    last conversations as a whole; further renderings are made for what differs. Raises what `renderer`
    raises, except `TemplateRefused`, which is counted.
    """
    auditor = Auditor(forest, renderer, name, block)
    breaks = tuple(auditor.run())
    found = survival(forest, auditor.follows, renderer)
    return Audited(breaks=breaks, tally=auditor.account.tally(breaks, found))


@attrs.define
class Auditor:
    """Walks from turn to turn; a prompt's rendering is held until the calls that go on from it have begun."""

    forest: Forest
    renderer: Renderer
    name: str
    block: int
    follows: Mapping[str, Follow] = attrs.field(init=False)
    known: set[tuple[str, int, int]] = attrs.field(factory=set)
    """The places that were reported, by their call and their bounds."""
    account: DriftCounters = attrs.field(init=False)

    @follows.default
    def _followed(self) -> Mapping[str, Follow]:
        return followed(self.forest)

    @account.default
    def _opened(self) -> DriftCounters:
        return DriftCounters(self.forest, self.follows, self.block)

    def run(self) -> Iterator[Break]:
        """Yield each break once."""
        newer: dict[str, list[str]] = {}
        for name, follow in self.follows.items():
            newer.setdefault(follow.of, []).append(name)
        roots = [node.name for node in self.forest.nodes if node.name not in self.follows]
        waiting: list[tuple[str, Seen | None]] = [(name, None) for name in reversed(roots)]
        while waiting:
            name, before = waiting.pop()
            views = self._views(name)
            now = self._seen(views, before)
            if now is not None:
                self.account.count("compared")
                self.account.restate(name)
                yield from self._breaks(views, *now)
            sent = packed(views.call.step.prompt_ids.tolist())
            held = Seen(sent) if now is None or views.open_end else Seen(now[0].rendered, now[0].hunks)
            if now is not None and before is not None and views.earlier is not None:
                used = views.earlier.stop + 1 if views.open_end else len(views.used)
                self.account.reuse(views.earlier, before.rendered, used, held.rendered)
            waiting += [(one, held) for one in reversed(newer.pop(name, []))]

    def _views(self, name: str) -> Views:
        call, follow = self.forest[name].call, self.follows.get(name)
        by_messages = follow is not None and follow.by is not By.IDS
        ids = self.forest[follow.of].call.ids if follow is not None and by_messages else call.step.prompt_ids
        return Views(self.renderer, self.forest, call, follow, packed(ids.tolist()), by_messages)

    def _seen(self, views: Views, before: Seen | None) -> tuple[View, Sequence[Hunk]] | None:
        """Return the view of a prompt and which of its hunks are new, or None where there is no comparing."""
        prompt = views.call.step.prompt
        if not prompt or prompt.multimodal:
            self.account.count("media" if prompt else "wordless")
            return None
        if views.open_end:
            view = views.sent()
            return view, view.hunks
        try:
            ids = self.renderer.ids(views.call.step.prompt, views.call.step.key, add_generation_prompt=True)
        except TemplateRefused:
            self.account.count("refused")
            return None
        rendered = packed(ids)
        kept, since, floor = _agreed(before, rendered, views)
        new = compared(self.renderer, views.used, rendered, since=since, floor=floor)
        return View(views.used, rendered, [*kept, *new]), new

    def _breaks(self, views: Views, view: View, new: Sequence[Hunk]) -> Iterator[Break]:
        for piece in joined(self._explained(views, view, new)):
            name = piece.place.region.call.name, piece.hunk.start, piece.hunk.stop
            if name not in self.known:
                self.known.add(name)
                yield self._break(views, view, piece)

    def _explained(self, views: Views, view: View, new: Sequence[Hunk]) -> Iterator[ExplainedHunk]:
        """Say of each new hunk where it lies and why, and remember what it changes."""
        top = views.follow.of if views.follow is not None and views.open_end else views.call.name
        for hunk in new:
            found = list(regions(self.forest, top, whole=views.open_end, down_to=hunk.start))
            place = placed(hunk, found, views.used, self.renderer.markers, self.renderer.text)
            self.account.cover(place, hunk)
            sampled = sum(region.holds(hunk) for region in place.sampled)
            yield ExplainedHunk(hunk, place, explained(views, view, hunk, place), sampled)

    def _break(self, views: Views, view: View, piece: ExplainedHunk) -> Break:
        hunk, place, found = piece.hunk, piece.place, piece.found
        after = hunk.stop + EITHER_SIDE, hunk.end + EITHER_SIDE
        text = self.renderer.text
        return Break(
            conversation=self.name,
            call=views.call.name,
            order=views.call.order,
            turn=place.owner.name,
            part=place.part,
            cause=found[0][0],
            also=tuple(dict.fromkeys(cause for cause, _ in found[1:] if cause is not found[0][0])),
            detail=found[0][1],
            happened=views.open_end,
            at=hunk.start,
            used_ids=hunk.stop - hunk.start,
            rendered_ids=hunk.end - hunk.begin,
            sampled_ids=piece.sampled,
            used=self._pieces(view.used[hunk.start : hunk.stop]),
            rendered=self._pieces(view.rendered[hunk.begin : hunk.end]),
            before=text(view.used[max(hunk.start - EITHER_SIDE, 0) : hunk.start].tolist()),
            used_after=text(view.used[hunk.stop : after[0]].tolist()),
            rendered_after=text(view.rendered[hunk.end : after[1]].tolist()),
        )

    def _pieces(self, ids: Packed) -> tuple[BreakText, ...]:
        return tuple(BreakText(number, self.renderer.text([number])) for number in ids[:SHOWN])


def _agreed(before: Seen | None, rendered: Packed, views: Views) -> tuple[list[Hunk], tuple[int, int], int]:
    """Return the hunks that the prompt before had too, and up to where there is nothing new to compare.

    Both its ids and its rendering are compared with this prompt's as memory: up to where they agree, so do
    the places where they differed from each other.
    """
    if before is None or views.earlier is None:
        return [], (0, 0), 0
    ours, theirs = views.earlier.start, common(before.rendered, 0, rendered, 0)
    kept = [hunk for hunk in before.hunks if hunk.stop < ours and hunk.end < theirs]
    place, other = (kept[-1].stop, kept[-1].end) if kept else (0, 0)
    later = before.hunks[len(kept)] if len(kept) < len(before.hunks) else None
    more = min(ours - place, theirs - other, *([later.start - place] if later else []))
    return kept, (place + more, other + more), place
