"""Put a case to the kernel and to the model: stitch, bridge, forest and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import attrs

from tests.model import bridge, stitch
from tests.model.compare.cases import Case
from tests.model.compare.quirks import Family, Quirky
from tests.model.compare.verdict import Verdict, judged
from tests.model.messages import calls, names, plain
from tito_core import (
    Bridge,
    Extension,
    OddStop,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    Truncated,
    answer,
    locate,
    try_stitch,
)
from tito_core.join import NextPrompt
from tito_core.seams.case import TurnKind, case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Case as Known
from tito_core.seams.profile import Profile
from tito_core.testing.toys import DEPENDENT_TOYS

KNOWLEDGE = ((), ("turn",), ("turn", "history", "sampled"), ("turn", "history", "sampled", "ledger"))
"""What a caller of a bridge knows besides the ids."""

BELIEVED_STOP = Verdict("decided otherwise", "BELIEVED_STOP")
"""Where no stops are known, the last id of a turn that was not cut is believed to close it, or to open what
follows, if it is the last id of the close, or the first of what follows."""

PAST_STOP = Verdict("decided otherwise", "PAST_STOP")
"""A known stop was sampled before the last id, where the kernel believes that an engine ends."""

CALL_CLOSED = Verdict("decided otherwise", "CALL_CLOSED")
"""Where no stops are known, what stands between a call that was cut and the suffix is taken for the call's,
as `</tool_call>` is, and is not written."""
UNSEEN_TURN = Verdict("decided otherwise", "UNSEEN_TURN")
"""A bridge that keeps odd stops, and does not know the turn, takes one for text alone: it may hold text that
begins the close."""

UNTAKEN = Verdict("without truth", "TEMPLATE_REFUSED")
"""The template does not take the whole conversation."""

UNWRITTEN = Verdict("decided otherwise", "UNWRITTEN")
"""A key differs in a message that the template drops."""


@cache
def certified(family: Family, kind: TurnKind, shape: tuple[str, ...]) -> Known:
    """Return what a profile knows of a kind of turn and what follows it."""
    return answer(certify_questions(kind, shape, family.suffix, family.stop_ids), family)


def profile(case: Case, *, knows: bool) -> Profile:
    """Return a profile of the case's template; one that `knows` has the very case of its turn."""
    family, cases = case.family, tuple[Known, ...]()
    located = locate(case.steps, case.prompt, policy=case.policy, key=case.key, media=case.placeholders)
    named = None if isinstance(located, Refusal) or not knows else case_of(located.turn, located.environment)
    if named is not None:
        cases = (certified(family, *named),)
    return Profile(suffix=family.suffix, stop_ids=family.stop_ids, cases=cases)


def depends(family: Family) -> bool:
    """Return whether what a template writes after a turn may depend on what came before."""
    template = family.template
    return bool(template.history) if isinstance(template, Quirky) else template.toy in DEPENDENT_TOYS


def shares(template: Quirky) -> bool:
    """Return whether it is open where one new message ends: results share a turn, or a close comes later."""
    return template.grouped or template.closed_later


def authored(family: Family) -> str:
    """Return how much a template says of who wrote what; results that share a turn have no clear borders."""
    return (
        "" if not isinstance(family.template, Quirky) else "grouped" if shares(family.template) else "whole"
    )


def stitched(case: Case, *, known: Profile | None = None) -> tuple[Verdict, Any, Any]:
    """Return what kernel and model say to a stitch."""
    family = case.family
    ours = try_stitch(
        case.steps,
        case.prompt,
        family.suffix,
        family,
        policy=case.policy,
        key=case.key,
        profile=known,
        media=case.placeholders,
    )
    theirs = stitch.stitch(
        case.steps,
        case.prompt,
        family.template,
        family.tokenizer,
        policy=case.policy,
        key=case.key,
        stops=() if known is None else family.stop_ids,
        placeholders=case.placeholders,
    )
    if isinstance(ours, Stitched) and not isinstance(theirs, str):
        step, forgiven, _ = theirs
        if ours.step is not step or {*names(ours.forgiven)} != forgiven:
            numbers = [next(i for i, one in enumerate(case.steps) if one is s) for s in (ours.step, step)]
            both = f"{numbers}, {sorted(names(ours.forgiven))}, {sorted(forgiven)}"
            return Verdict("DISAGREED", f"step and receipts: {both}"), ours, theirs
    answers = theirs if isinstance(theirs, str) else theirs[2]
    verdict = judged(ours, answers, authored=authored(family))
    stops = () if known is None else family.stop_ids
    if verdict.wrong and isinstance(ours, Stitched):
        defended = believed_stop(ours, answers, stops) or past_stop(ours.step, stops)
        defended = defended or unwritten(case, ours.step) or call_closed(ours, answers, stops)
        verdict = defended or verdict
    return verdict, ours, answers


def unwritten(case: Case, step: Step) -> Verdict | None:
    """Return the verdict where the keys that a template reads differ in messages that it drops."""
    try:
        page = case.family.template.page([plain(m) for m in case.prompt], add_generation_prompt=True)
    except TemplateRefused:
        return UNTAKEN
    pairs = enumerate(zip(step.messages, map(plain, case.prompt), strict=False))
    differ = {i for i, (a, b) in pairs for key in case.family.template.reads if a.get(key) != b.get(key)}
    return UNWRITTEN if differ and differ.isdisjoint(page.wholes) else None


def believed_stop(ours: Any, answers: Any, stops: Sequence[int]) -> Verdict | None:
    """Return the verdict on a last id that is odd for one of the two alone, where no stops are known."""
    first = None if isinstance(answers, str) else answers[0]
    if first is not None and not stops and isinstance(ours, NextPrompt) and ours.ids.tolist() == first.ids:
        return BELIEVED_STOP
    odd = answers == "ODD_STOP" if first is None else (first.replaced, first.kept) != (None, None)
    believed = odd and not stops and isinstance(ours, NextPrompt) and not ours.inserted_close
    return BELIEVED_STOP if believed else None


def call_closed(ours: Stitched, answers: Any, stops: Sequence[int]) -> Verdict | None:
    """Return the verdict on a call that was cut, whose close the model alone tells from the call."""
    cut = not stops and ours.step.truncated and bool(calls(ours.step.messages[-1]))
    right = [one.ids[-len(ours.added) :] for one in answers] if cut and not isinstance(answers, str) else []
    return CALL_CLOSED if list(ours.added) in right else None


def unseen_turn(ours: Any, answers: Any) -> Verdict | None:
    """Return the verdict on an odd stop that was kept, after which the model writes less of the close."""
    if not isinstance(ours, Extension) or ours.kept_stop is None or isinstance(answers, str):
        return None
    kept, sizes = ours.ids[: len(ours.ids) - len(ours.added)], range(1, len(ours.inserted_close) + 1)
    shorter = [[*kept, *ours.added[size:]] for size in sizes]
    return UNSEEN_TURN if any(one.ids in shorter for one in answers) else None


def past_stop(step: Step, stops: Sequence[int]) -> Verdict | None:
    """Return the verdict on a turn that was sampled past a stop, None for any other."""
    return None if set(stops).isdisjoint(step.completion_ids[:-1]) else PAST_STOP


def answers_turn(new: Sequence[Any], turn: Any) -> bool:
    """Return whether the turn has calls, and new results do not name other tools than they do."""
    called = {call.get("id"): call["function"].get("name") for call in calls(turn)}
    return bool(called) and all(called.get(m.get("tool_call_id")) == m["name"] for m in new if m.get("name"))


def extended(case: Case, level: int, *, cut_known: bool) -> tuple[Verdict, Any, Any] | None:
    """Return what kernel and model say to a bridge after the longest step; None without one."""
    family = case.family
    fits = [
        s
        for s in case.steps
        if len(s.completion) == 1 and len(s.messages) and s.messages[-1]["role"] == "assistant"
    ]
    if not fits:
        return None
    step = max(fits, key=lambda one: len(one.messages))
    new = [plain(m) for m in case.prompt[len(step.messages) :]]
    if level == 0 and new and new[0]["role"] == "tool" and not answers_turn(new, plain(step.messages[-1])):
        return None  # as documented, a result is taken to answer a call of the turn where that is unknown
    truncated = step.truncated if cut_known else None
    values = {
        "turn": step.messages[-1],
        "history": list(step.prompt),
        "sampled": len(step.completion_ids),
        "ledger": step.prompt_ledger,
    }
    known: dict[str, Any] = {name: values[name] for name in KNOWLEDGE[level]}
    known |= {"media": step.media} if len(step.media) else {}
    asked = Bridge(family, family.stop_ids, policy=case.policy, suffix=family.suffix, media=case.placeholders)
    ours = asked.extend(step.ids, new, truncated=truncated, **known)
    theirs = bridge.extend(
        step,
        new,
        family.template,
        family.tokenizer,
        policy=case.policy,
        stops=family.stop_ids,
        truncated=truncated,
        placeholders=case.placeholders,
        counted=level >= 2,
    )
    verdict = judged(ours, theirs, authored=authored(family), located=False)
    if verdict.wrong:
        stops = family.stop_ids
        defended = believed_stop(ours, theirs, stops) or past_stop(step, stops)
        verdict = defended or (unseen_turn(ours, theirs) if level == 0 else None) or verdict
    return verdict, ours, theirs


def asked(case: Case) -> Iterator[tuple[str, Verdict, Any, Any]]:
    """Yield a name, the verdict and both answers for everything that a case is asked."""
    yield "stitch", *stitched(case)
    stops = profile(case, knows=False)
    for choice in product(Truncated, OddStop):
        chosen = attrs.evolve(case.policy, truncated=choice[0], odd_stop=choice[1])
        other = attrs.evolve(case, policy=chosen)
        yield f"stitch, {choice[0].name} {choice[1].name}, stops known", *stitched(other, known=stops)
    if not case.dear or depends(case.family):
        yield "stitch, profile", *stitched(case, known=profile(case, knows=True))
    for level, cut_known in product(range(bool(case.dear), len(KNOWLEDGE)), (True, False)):
        found = extended(case, level, cut_known=cut_known)
        if found is not None:
            yield f"bridge {level}{'' if cut_known else ', cut unknown'}", *found
