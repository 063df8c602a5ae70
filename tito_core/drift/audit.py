"""Audit a conversation for drift: compare each prompt, rendered from messages, with the ids that were used.

A prompt that continues a call by ids is compared with its own ids, which the engine saw. A prompt that
continues it by messages alone is compared with the ids of the turn that it restates. The engine would have
seen those. Each difference is reported once, at the first prompt that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from ..errors import TemplateRefused
from ..samples.forest import Forest
from ..samples.trie import common_length
from .breaks import CONTEXT, MAX_TOKENS, Break, BreakText
from .counters import DriftCounters
from .diff import Hunk, Packed, packed
from .explain import ExplainedHunk, explain, group
from .numbered import NumberedMedia, has_all_ranges
from .place import locate_hunk, regions
from .predecessor import By, find_predecessors
from .renderer import Renderer
from .renderings import ComparedRendering, PromptRenderings
from .tally import Tally
from .text import compare


@attrs.frozen(kw_only=True)
class Audited:
    """The result of auditing a conversation.

    Attributes:
        breaks: The differences, those of a turn before those of the turns that continue it.
        tally: Counts of turns, ids and breaks.
        refusal: The first prompt that was refused, and why; empty where none was.
    """

    breaks: tuple[Break, ...]
    tally: Tally
    refusal: str = ""


def audit(forest: Forest, renderer: Renderer, *, name: str = "", block: int = 16) -> Audited:
    """Compare each prompt of a conversation with a rendering of its messages.

    Each prompt is rendered once, and each last conversation as a whole. More renderings are made only for
    differences.

    Args:
        forest: The calls of the conversation.
        renderer: Renders messages through the family's chat template.
        name: Name of the conversation, for its breaks.
        block: Ids in a block of the engine's prefix cache.

    Returns:
        The breaks, and counts over the conversation. A prompt that the template rejects is counted as
        refused. Other errors of `renderer` are raised.
    """
    counters = DriftCounters(forest, find_predecessors(forest), block)
    numbered = NumberedMedia.of(renderer, forest)
    breaks = tuple(Auditor(forest, numbered, name, counters).run())
    return Audited(breaks=breaks, tally=counters.tally(breaks, numbered), refusal=counters.refusal)


@attrs.define
class Auditor:
    """Walks from turn to turn. `reported` has the places that were reported, by call and bounds."""

    forest: Forest
    renderer: NumberedMedia
    name: str
    counters: DriftCounters
    reported: set[tuple[str, int, int]] = attrs.field(factory=set)

    def run(self) -> Iterator[Break]:
        """Yield each break once."""
        later: dict[str, list[str]] = {}
        predecessors = self.counters.predecessors
        for name, before in predecessors.items():
            later.setdefault(before.name, []).append(name)
        roots = [node.name for node in self.forest.nodes if node.name not in predecessors]
        # Depth first, so that a prompt's rendering is dropped once the calls after it have begun.
        waiting: list[tuple[str, ComparedRendering | None]] = [(name, None) for name in reversed(roots)]
        while waiting:
            name, earlier = waiting.pop()
            renderings = self._renderings(name)
            compared = self._compare(renderings, earlier)
            step = renderings.call.step
            sent = self.renderer.used(step.prompt_ids, step.media)
            latest = ComparedRendering(sent, sent, hunks=())
            if compared is not None:
                rendering, new = compared
                self.counters.counts["compared_prompts"] += 1
                if earlier is None and not rendering.alike:
                    self.counters.counts["foreign_conversations"] = 1
                self.counters.add_restated(name)
                yield from self._breaks(renderings, rendering, new)
                if not renderings.open_end:
                    latest = rendering
                if earlier is not None and renderings.earlier is not None:
                    used = renderings.earlier.stop + 1 if renderings.open_end else len(renderings.used)
                    self.counters.add_reuse(renderings.earlier, earlier.rendered, used, latest.rendered)
            waiting += [(one, latest) for one in reversed(later.pop(name, []))]

    def _renderings(self, name: str) -> PromptRenderings:
        call, before = self.forest[name].call, self.counters.predecessors.get(name)
        used, open_end = self.renderer.used(call.step.prompt_ids, call.step.media), False
        if before is not None and before.by is not By.IDS:
            earlier = self.forest[before.name].call
            used, open_end = self.renderer.used(earlier.ids, earlier.step.media), True
        return PromptRenderings(self.renderer, self.forest, call, before, used, open_end)

    def _compare(
        self, renderings: PromptRenderings, earlier: ComparedRendering | None
    ) -> tuple[ComparedRendering, Sequence[Hunk]] | None:
        """Return the compared rendering of a prompt and its new hunks; None where it cannot be rendered."""
        prompt, key = renderings.call.step.prompt, renderings.call.step.key
        steps = [call.step for call in (renderings.call, renderings.earlier) if call is not None]
        if not prompt or not all(map(has_all_ranges, steps)):
            self.counters.counts["prompts_with_media" if prompt else "prompts_without_messages"] += 1
            return None
        if renderings.open_end:
            rendering = renderings.sent()
            return rendering, rendering.hunks
        try:
            ids = self.renderer.ids(prompt, key, add_generation_prompt=True, ranges=steps[0].media)
        except TemplateRefused as refused:
            self.counters.counts["refused_prompts"] += 1
            self.counters.refusal = self.counters.refusal or f"{renderings.call.name}: {refused}"
            return None
        rendered = packed(ids)
        kept, since, floor = _unchanged(earlier, rendered, renderings)
        text, markers = self.renderer.text, self.renderer.markers
        new = compare(text, markers, renderings.used, rendered, since=since, floor=floor)
        return ComparedRendering(renderings.used, rendered, [*kept, *new]), new

    def _breaks(
        self, renderings: PromptRenderings, rendering: ComparedRendering, new: Sequence[Hunk]
    ) -> Iterator[Break]:
        for one in group(self._explained(renderings, rendering, new)):
            place = one.place.region.call.name, one.hunk.start, one.hunk.stop
            if place not in self.reported:
                self.reported.add(place)
                yield self._break(renderings, rendering, one)

    def _explained(
        self, renderings: PromptRenderings, rendering: ComparedRendering, new: Sequence[Hunk]
    ) -> Iterator[ExplainedHunk]:
        """Yield each new hunk with its place and causes, and count what it changes."""
        before, markers, text = renderings.predecessor, self.renderer.markers, self.renderer.text
        top = before.name if before is not None and renderings.open_end else renderings.call.name
        for hunk in new:
            found = list(regions(self.forest, top, completion=renderings.open_end, down_to=hunk.start))
            place = locate_hunk(hunk, found, renderings.used, markers, text)
            self.counters.add_change(place, hunk)
            findings = explain(renderings, rendering, hunk, place)
            yield ExplainedHunk(hunk, place, findings, sum(region.overlap(hunk) for region in place.sampled))

    def _break(self, renderings: PromptRenderings, rendering: ComparedRendering, one: ExplainedHunk) -> Break:
        hunk, place, shown = one.hunk, one.place, self.renderer.shown
        used, rendered = rendering.used, rendering.rendered
        (cause, detail), *others = one.findings
        return Break(
            conversation=self.name,
            call=renderings.call.name,
            order=renderings.call.order,
            turn=place.owner.name,
            part=place.part,
            cause=cause,
            also=tuple(other for other, _ in others),
            detail=detail,
            happened=renderings.open_end,
            at=hunk.start,
            used_ids=hunk.stop - hunk.start,
            rendered_ids=hunk.end - hunk.begin,
            sampled_ids=one.sampled,
            used=tuple(self._tokens(used, hunk.start, hunk.stop)),
            rendered=tuple(self._tokens(rendered, hunk.begin, hunk.end)),
            before=shown(used[max(hunk.start - CONTEXT, 0) : hunk.start].tolist()),
            used_after=shown(used[hunk.stop : hunk.stop + CONTEXT].tolist()),
            rendered_after=shown(rendered[hunk.end : hunk.end + CONTEXT].tolist()),
        )

    def _tokens(self, ids: Packed, start: int, stop: int) -> Iterator[BreakText]:
        """Yield the first tokens from `start` to `stop`; all ids of a medium are one."""
        for _ in range(MAX_TOKENS):
            if start >= stop:
                return
            medium, index = self.renderer.medium_at(ids, start), ids[start]
            if medium is None:
                yield BreakText(index, self.renderer.text([index]))
                start += 1
            else:
                size = min(medium.stop, stop) - start
                yield BreakText(medium.collapsed[0], f"[{medium.modality}]", size, medium)
                start += size


def _unchanged(
    earlier: ComparedRendering | None, rendered: Packed, renderings: PromptRenderings
) -> tuple[list[Hunk], tuple[int, int], int]:
    """Return the hunks of the earlier prompt that this one has too, and `since` and `floor` for `compare`.

    A history grows with each turn, so that comparing whole prompts would cost the square of its length.
    Used ids and rendering are compared as memory with those of the earlier prompt. Up to where both agree,
    the hunks are the same ones.
    """
    if earlier is None or renderings.earlier is None:
        return [], (0, 0), 0
    used_same, rendered_same = renderings.earlier.start, common_length(earlier.rendered, rendered)
    kept = [hunk for hunk in earlier.hunks if hunk.stop < used_same and hunk.end < rendered_same]
    place, other = (kept[-1].stop, kept[-1].end) if kept else (0, 0)
    next_hunk = earlier.hunks[len(kept)] if len(kept) < len(earlier.hunks) else None
    more = min(used_same - place, rendered_same - other, *([next_hunk.start - place] if next_hunk else []))
    return kept, (place + more, other + more), place
