"""What a `Bridge` makes of a cell, as more is known: ids and new messages, the turn, the history."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from tests.families.conversations import Case
from tito_core import Bridge, Extension, Message, Rendered, TemplateRefused, TokenizeFn
from tito_core.bridge import Known
from tito_core.seams.tail import ProfileLike

EXACT, REFUSED, WRONG = "exact", "refused", "WRONG"
LEVELS = ("ids and new messages", "with the turn", "with the turn and the history")


@attrs.frozen
class Bridged:
    """One answer of a bridge, judged.

    Attributes:
        knows: What was given; one of `LEVELS`.
        verdict: Whether the ids are the right ones.
        reason: Why it was refused.
        questions: How many renders were asked for.
        seconds: How long it took.
        spans: Whether it is known which ids are whose; None where the bridge refused, or less was given.
    """

    knows: str
    verdict: str
    reason: str
    questions: int
    seconds: float
    spans: bool | None = None


@attrs.define
class CountingQuestions:
    """A `tokenize_fn` that counts what it is asked."""

    bound: Any
    asked: int = 0

    def __call__(self, *args: Any, **options: Any) -> Sequence[int]:
        self.asked += 1
        ids: Sequence[int] = self.bound(*args, **options)
        return ids

    def rendered(self, *args: Any, **options: Any) -> Rendered:
        self.asked += 1
        found: Rendered = self.bound.rendered(*args, **options)
        return found


@attrs.define
class RememberedAnswers:
    """A `tokenize_fn` that renders equal questions once: three in four of a cell's are asked again."""

    bound: Any
    _known: dict[bytes, Any] = attrs.field(factory=dict, init=False)

    def __call__(self, messages: Sequence[Message], **options: Any) -> Any:
        return self._answer(self.bound, messages, **options)

    def rendered(self, *asked: Any, **options: Any) -> Any:
        return self._answer(self.bound.rendered, *asked, **options)

    def _answer(self, ask: Callable[..., Any], *asked: Any, **options: Any) -> Any:
        key = pickle.dumps((asked, options))
        if key not in self._known:
            self._known[key] = _answer_or_refusal(ask, *asked, **options)
        known = self._known[key]
        if isinstance(known, TemplateRefused):
            raise known
        return known


def _answer_or_refusal(
    ask: Callable[..., Sequence[int]], *asked: Any, **options: Any
) -> Sequence[int] | TemplateRefused:
    try:
        return ask(*asked, **options)
    except TemplateRefused as refusal:
        return refusal


def bridged(
    case: Case,
    ids: Sequence[int],
    right: Sequence[int],
    bound: TokenizeFn,
    *,
    stops: Sequence[int],
    suffix: Sequence[int],
    profile: ProfileLike | None = None,
) -> tuple[Bridged, ...]:
    """Extend `ids` by the new messages of `case` at every level of knowledge."""
    known: tuple[Known, ...] = ({}, {"turn": case.turn}, {"turn": case.turn, "history": case.history})
    found = []
    for level, given in zip(LEVELS, known, strict=True):
        counting = CountingQuestions(bound)
        bridge = Bridge(counting, stops, suffix=suffix, profile=profile, spans=False)
        began = time.perf_counter()
        answered = bridge.extend(ids, case.environment, **given)
        took, asked = time.perf_counter() - began, counting.asked
        if isinstance(answered, Extension):
            verdict = EXACT if answered.ids.tolist() == list(right) else WRONG
            found.append(Bridged(level, verdict, "", asked, took))
        else:
            reason = f"{answered.reason.name}: {answered.detail}"
            found.append(Bridged(level, REFUSED, reason, asked, took))
    if found[-1].verdict == EXACT:
        whole = Bridge(bound, stops, suffix=suffix, profile=profile).extend(
            ids, case.environment, **known[-1]
        )
        shown = isinstance(whole, Extension) and isinstance(whole.spans, tuple)
        found[-1] = attrs.evolve(found[-1], spans=shown)
    return tuple(found)
