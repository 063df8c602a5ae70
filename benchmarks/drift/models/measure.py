"""Count the drift of stored conversations by turn: each prompt as it went, and rendered afresh."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import attrs

from tito_core import TitoError
from tito_core.drift.audit import audit
from tito_core.drift.diff import Packed, find_hunks, packed
from tito_core.drift.renderer import Renderer
from tito_core.samples import Forest, StoredCall
from tito_core.samples.trie import common_length
from tito_io.audit.rendering import AuditRendering, named_engine
from tito_io.samples.conversation import Problem
from tito_io.samples.read import StoredConversation, conversations

from .counts import Cell
from .design import ENOUGH, Plan
from .folder import ModelFolder
from .scripts import LANGUAGES


@attrs.define
class TurnCounter:
    """Counts one conversation, turn by turn.

    Attributes:
        renderer: Renders messages through the model's template.
        earlier: The turn before.
        rendered: The prompt of that turn, rendered afresh.
        drifted: Whether some prompt so far has drifted.
    """

    renderer: Renderer
    earlier: StoredCall | None = None
    rendered: Packed = attrs.field(factory=lambda: packed([]))
    drifted: bool = False

    def counted(self, call: StoredCall) -> Counter[str]:
        """Return the counts of a turn; raises `TemplateRefused` where its prompt cannot be rendered."""
        step, before = call.step, self.earlier
        rendered = packed(self.renderer.ids(step.prompt, step.key, add_generation_prompt=True))
        by_messages = before is not None and not step.prompt_ids.starts_with(before.step.ids)
        ids = before.step.ids if before is not None and by_messages else step.prompt_ids
        used = packed(ids.tolist())
        hunks = find_hunks(used, rendered, self.renderer.markers, open_end=by_messages)
        self.drifted = self.drifted or bool(hunks)
        recomputed = 0
        if before is not None and not by_messages:
            recomputed = self._recomputed(before, len(step.prompt_ids), rendered)
        self.earlier, self.rendered = call, rendered
        return Counter(
            conversations=1,
            drifted=int(self.drifted),
            ended=int(not step.truncated),
            called=int(any(message.get("tool_calls") for message in step.completion)),
            by_messages=int(by_messages),
            sampled_ids=len(step.completion_ids),
            sampled_in_cut=len(step.completion_ids) if step.truncated else 0,
            prompt_ids=len(step.prompt_ids),
            changed_ids=sum(hunk.stop - hunk.start for hunk in hunks),
            first_changed=hunks[0].start if hunks else 0,
            recomputed_ids=recomputed,
        )

    def _recomputed(self, before: StoredCall, length: int, rendered: Packed) -> int:
        """Return how many ids more an engine computes for a prompt by messages than by ids.

        By ids, `length` of them, it has all of the turn before. By messages it has what that turn's prompt
        was rendered to, and what was sampled after it. It computes at least the last id of a prompt.
        """
        known = self.rendered + packed(before.step.completion_ids.tolist())
        by_messages = max(len(rendered) - common_length(known, rendered), 1)
        return by_messages - max(length - before.stop, 1)


def counted_forest(forest: Forest, renderer: Renderer) -> Iterator[tuple[int, Counter[str]]]:
    """Yield turns, from 1, with their counts; sampled ids that change are counted by the audit's causes."""
    causes: dict[str, Counter[str]] = defaultdict(Counter)
    for one in audit(forest, renderer).breaks:
        cut = forest[one.turn].call.step.truncated
        causes[one.call] += Counter({one.cause.name.lower(): one.sampled_ids})
        causes[one.call]["changed_in_cut"] += one.sampled_ids if cut else 0
    counter = TurnCounter(renderer)
    for turn, call in enumerate(forest.calls, 1):
        yield turn, counter.counted(call) + causes[call.name]


@attrs.define
class Measurement:
    """Counts of conversations.

    Attributes:
        counts: The counts so far.
        problems: Conversations that cannot be counted, and why.
    """

    counts: dict[Cell, Counter[str]] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)

    def leave_out(self, model: str, family: str) -> None:
        """Add a family without conversations: its template does not take plain text."""
        self.counts[Cell(model, family, 0.0, LANGUAGES[0], tools=False, limit=ENOUGH, turn=1)] = Counter()

    def add(self, name: str, forest: Forest, renderer: Renderer, *, model: str, family: str = "") -> None:
        """Add a conversation whole, or a problem."""
        try:
            plan = Plan.parse(name)
            found = list(counted_forest(forest, renderer))
        except (TitoError, ValueError) as error:
            self.problems.append(f"{model}: conversation {name!r:.60}: {error!s:.300}")
            return
        for turn, counted in found:
            same = (plan.temperature, plan.language, plan.tools, plan.limit)
            cell = Cell(model, family, *same, turn)
            self.counts[cell] = self.counts.get(cell, Counter()) + counted


def stored(folder: ModelFolder) -> Iterator[StoredConversation | Problem]:
    """Yield the finished conversations of a folder."""
    for path in folder.finished():
        yield from conversations(path)


def measured(folder: ModelFolder, found: Iterable[StoredConversation | Problem], into: Measurement) -> None:
    """Count conversations with the model's own tokenizer and template."""
    settings = folder.settings
    engines = [named_engine(path) for path in folder.finished()[:1]]
    rendering = AuditRendering(family=settings.source, rendered_as=[*engines, "transformers"][0])
    renderer = rendering.load()
    for one in found:
        if isinstance(one, Problem):
            into.problems.append(f"{settings.model}: {one}")
        else:
            into.add(one.name, one.forest, renderer, model=settings.model)
