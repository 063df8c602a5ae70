"""Certify a case: show in many histories what the tail after one kind of turn depends on.

The words, the names of calls and the number of neighbours are varied. A recipe that recognizes every proven
tail is the certificate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from ..errors import TemplateRefused
from ..media.ranges import Placeholders
from ..normalization.canonical import REASONING
from ..questions import Question, Questions, ask, bounded, relayed
from ..refusal import Reason, Refusal
from .case import TurnKind
from .experiments import LOOP_GOES_ON, Experiment, experiments
from .history import STYLES, Context, Past, Style, akin_histories
from .profile import CERTIFIED_LOOPS, Case, Mode, Recipe, recognize
from .prove import (
    Proof,
    Taken,
    disagreement_questions,
    first_taken,
    show_questions,
    whole_history_questions,
)
from .sample import sample_environment, sample_turn, spelled_out
from .seam import OTHER, SHORT, common_prefix
from .turn import Environment, SampledTurn
from .turn_form import TurnForm

Plain = dict[str, Any]
SAMPLES = ((2, "Well", ("find",)), (3, "Take 12 of them", ("get_weather", "lookup")))
"""For each sample, how many neighbours stand for many, the text of the new messages, and the called tools."""
OTHER_FORMS = [Style(other=False, looped=one, system=False, as_object=not one) for one in (True, False)]
"""Without a system text, with an earlier tool loop whose arguments are texts, and without one."""
OTHER_FORM = "earlier messages are written in another form"
MANY_SHOWN = 3
"""Media in the first message of a history that shows many."""
OPENING: Plain = {"role": "system", "content": "Answer in one line."}
ASKED: Plain = {"role": "user", "content": "How many?"}


MOST_RENDERS = 96
"""Renders for a certificate."""
TOO_MANY = Refusal(Reason.UNPROVEN_TAIL, f"more than {MOST_RENDERS} renders")
UNTAKEN = Refusal(Reason.UNPROVEN_TAIL, "too few histories are taken")


@attrs.define
class RenderCount:
    """Count the renders of a certificate."""

    renders: int = 0

    def count(self, question: Question) -> Question:
        """Count `question` and return it."""
        self.renders += 1
        return question


def certify_questions(
    kind: TurnKind, shape: tuple[str, ...], suffix: tuple[int, ...], stop_ids: Sequence[int] = ()
) -> Questions[Case]:
    """Ask until the case of `kind` before `shape` is certified or refused.

    A case whose tail depends on the history is certified for whole histories instead of short ones.
    `suffix` is the template's close; `stop_ids` are the ids that a turn may end with if the suffix does not
    close it.
    """
    counter = RenderCount()
    wanted = CaseToShow(kind, shape, suffix, tuple(stop_ids))
    asking = bounded(_certified(wanted), MOST_RENDERS, wanted.refused(TOO_MANY))
    case = yield from relayed(asking, counter.count)
    return attrs.evolve(case, renders=counter.renders)


@attrs.frozen
class CaseToShow:
    """The case to show."""

    kind: TurnKind
    shape: tuple[str, ...]
    suffix: tuple[int, ...]
    stop_ids: tuple[int, ...]

    def samples(self) -> Iterator[CaseSample]:
        """Yield samples that differ in words, names and numbers."""
        for many, words, names in SAMPLES:
            turn = self.turn(many, names)
            yield CaseSample(turn, sample_environment(self.shape, turn.message, many, words))

    def turn(self, many: int, names: Sequence[str]) -> SampledTurn:
        """Return a turn of the kind, with calls of the tools `names` in turn; `many` stand for several."""
        # A shape may have more results than `many`: those of one form beside those of another.
        results = sum(name.startswith("tool") for name in spelled_out(self.shape, many))
        count = max(many, results) if self.kind.calls > 1 else self.kind.calls
        return SampledTurn(
            message=sample_turn(self.kind, [names[place % len(names)] for place in range(count)]),
            after=self.kind.before,
            history=(OPENING, ASKED),
            suffix=self.suffix,
            stops=self.stop_ids,
            placeholders=Placeholders(tuple((name, (0,)) for name in self.kind.media)),
            shown=MANY_SHOWN * bool(self.kind.media),
        )

    def refused(self, refusal: Refusal) -> Case:
        """Return the case as refused."""
        return Case(
            kind=self.kind, shape=self.shape, mode=Mode.REFUSED, reason=refusal.reason, detail=refusal.detail
        )


@attrs.frozen
class CaseSample:
    """A turn and an environment to try a case with."""

    turn: SampledTurn
    environment: Environment

    @property
    def loops(self) -> list[Experiment]:
        """A tool loop that goes on, as it may in a known case."""
        after = self.turn.after
        loops = [Past(role=after, loop=(after,))] * ((after,) in CERTIFIED_LOOPS)
        return [Experiment(LOOP_GOES_ON, past.histories, needed=False) for past in loops]

    @property
    def forms(self) -> list[Experiment]:
        """Histories of other forms than the richest, which is asked about first."""
        written = list(zip(STYLES, Past(role=self.turn.after).histories, strict=True))
        ways = ([one if style == form else None for style, one in written] for form in OTHER_FORMS)
        return [Experiment(OTHER_FORM, way, needed=False) for way in ways]


def _certified(wanted: CaseToShow) -> Questions[Case]:
    """Locate the turn of every sample. Try short histories first, then whole ones."""
    located: list[tuple[CaseSample, Proof]] = []
    for sample in wanted.samples():
        proof = yield from show_questions(sample.turn, sample.environment, sample.turn.likely)
        if isinstance(proof, Refusal):
            return wanted.refused(proof)
        located.append((sample, proof))
    # DeepSeek-V3 opens the first result of a conversation in another way than the later ones; Cohere's
    # templates number its calls.
    found = yield from _in_mode(wanted, located, Mode.FREE)
    if isinstance(found, Refusal) and found.reason is Reason.UNPROVEN_TAIL:
        found = yield from _in_mode(wanted, located, Mode.HISTORY)
    return wanted.refused(found) if isinstance(found, Refusal) else found


def _in_mode(
    wanted: CaseToShow, located: Sequence[tuple[CaseSample, Proof]], mode: Mode
) -> Questions[Case | Refusal]:
    """Show the tail of every sample, and that one recipe recognizes all of them."""
    shown: list[Shown] = []
    for sample, proof in located:
        found = yield from (_free if mode is Mode.FREE else _whole)(sample, proof)
        if isinstance(found, Refusal):
            return found
        shown += found
    recipe = joined([one.recipe for one in shown])
    if recipe is None or any(recognize(recipe, ids) != one.tail for one in shown for ids in one.answers):
        return Refusal(Reason.UNPROVEN_TAIL, "the tail is not found in one way")
    changed = yield from _rewritten(located[0][0], recipe)
    return Case(
        kind=wanted.kind,
        shape=wanted.shape,
        mode=mode,
        recipe=recipe,
        histories=sum(one.histories for one in shown),
        rewritten=changed,
    )


@attrs.frozen
class Shown:
    """A proven tail, and a recipe that recognizes it.

    Attributes:
        tail: The ids.
        recipe: How to ask for them.
        answers: The answers to the recipe's question, whole and cut.
        histories: In how many histories the tail was the same.
    """

    tail: tuple[int, ...]
    recipe: Recipe
    answers: tuple[tuple[int, ...], ...]
    histories: int


def _free(sample: CaseSample, proof: Proof) -> Questions[list[Shown] | Refusal]:
    """Show that other histories give the same tail, as before a turn without a profile."""
    turn, taken = sample.turn, Taken()
    failed = yield from disagreement_questions(turn, proof, [*sample.loops, *sample.forms], taken)
    if failed is not None:
        return failed
    # GLM-4.5 and Qwen3-Coder take arguments of earlier calls as objects alone, DeepSeek-V3 as texts.
    for past, history in enumerate(akin_histories(turn.after, turn.history)):
        shown = yield from _shown(turn, proof, history, past, taken.count)
        if shown is not None:
            return [attrs.evolve(shown, recipe=attrs.evolve(shown.recipe, unlike=taken.first))]
    return Refusal(Reason.UNPROVEN_TAIL, "the tail is not recognized")


def _whole(sample: CaseSample, likely: Proof) -> Questions[list[Shown] | Refusal]:
    """Show the tail in a whole history of each experiment."""
    found: list[Shown] = []
    taken = Taken()
    for row in (*experiments(sample.turn, sample.environment), *sample.loops):
        if (yield from first_taken(likely.located, row.histories, taken=taken)) is None:
            continue
        turn = attrs.evolve(sample.turn, prompt=taken.last, place=len(taken.last))
        proof = yield from whole_history_questions(turn, sample.environment, (likely.located.form,))
        if isinstance(proof, Refusal):
            return proof
        shown = yield from _shown(turn, proof, taken.last, 0, 1)
        if shown is None:
            return Refusal(Reason.UNPROVEN_TAIL, "not recognized")
        found.append(shown)
    if len({one.recipe.rest for one in found}) > 1:  # of one call: it may be no part of the call
        return Refusal(Reason.UNPROVEN_TAIL, "it is not clear where a call ends")
    return found if len(found) > 1 else UNTAKEN


def _shown(
    turn: SampledTurn, proof: Proof, history: Context, past: int, histories: int
) -> Questions[Shown | None]:
    """Ask as a stitch would; None if the template rejects that history."""
    located = proof.located
    messages = (*history, located.form.write(SHORT), *located.environment)
    try:
        whole = yield from ask(messages)
        other = yield from ask((*history, located.form.write(OTHER), *located.environment))
        part = yield from ask(messages, since=SHORT)
    except TemplateRefused:
        return None
    tail = len(located.seam.tail)
    text = whole[common_prefix(whole, other) : len(whole) - tail]
    cut = part != whole and part[len(part) - tail :] == whole[len(whole) - tail :]
    # A tokenizer may write a space before the first word of a text, and other ids than within it.
    mark = _common_end(text, part[: len(part) - tail]) if cut else text
    recipe = Recipe(
        place=located.form.place,
        as_object=located.form.as_object,
        past=past,
        mark=mark or text,
        rest=located.seam.tail[: proof.cut.place],
        close=proof.ids[: proof.cut.closed] or tuple(i for i in proof.ids[:1] if i in turn.stops),
        closed=proof.cut.closed,
        speaks=proof.ids[len(proof.ids) - proof.generation_prompt :],
        cut=cut and bool(mark),
    )
    return Shown(proof.ids, recipe, (whole, part) if recipe.cut else (whole,), histories)


def joined(recipes: Sequence[Recipe]) -> Recipe | None:
    """Return one recipe in place of all, None if they differ.

    What stands between the text and the close may differ if the close is recognized by itself.
    """
    first = recipes[0]
    mark = first.mark
    for recipe in recipes[1:]:
        mark = _common_end(mark, recipe.mark)
    # Mistral-Nemo writes a call's id after its arguments.
    fixed = all(recipe.rest == first.rest for recipe in recipes)
    rest = first.rest if fixed else None
    cut = all(recipe.cut for recipe in recipes)
    one, *others = (attrs.evolve(recipe, mark=mark, rest=rest, cut=cut) for recipe in recipes)
    sound = bool(mark) and (fixed or bool(one.close)) and all(other == one for other in others)
    return one if sound else None


def _common_end(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ids that both end with.

    >>> _common_end((1, 5, 6), (2, 5, 6))
    (5, 6)
    """
    size = common_prefix(one[::-1], other[::-1])
    return one[len(one) - size :]


def _rewritten(sample: CaseSample, recipe: Recipe) -> Questions[bool]:
    """Return whether the turn as history has other ids than when it was sampled.

    It was sampled after the generation prompt, with its reasoning before its text.
    """
    history = akin_histories(sample.turn.after, sample.turn.history)[recipe.past]
    form = TurnForm(sample.turn.message, recipe.place, recipe.as_object)
    bare = {k: v for k, v in sample.turn.message.items() if k not in REASONING}
    try:
        prompt = yield from ask(history)
        rendered = yield from ask((*history, form.write(SHORT), *sample.environment))
        thoughtless = yield from ask(
            (*history, attrs.evolve(form, turn=bare).write(SHORT), *sample.environment)
        )
    except TemplateRefused:
        return False
    # Qwen3 drops reasoning once a user's message follows; GLM-4.5 writes an empty one.
    dropped = bare != sample.turn.message and thoughtless == rendered
    return dropped or rendered[: len(prompt)] != prompt
