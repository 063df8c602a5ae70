"""A cell of the table: one template, one conversation, what the kernel makes of it and whether it is true."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tests.families.conversations import SPOKEN, Case, cases
from tests.families.tail import Tail, tail
from tito_core import (
    Message,
    OddStop,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    TokenizeFn,
    answer,
    stitching,
)
from tito_core.suffix import suffix_ids
from tito_io.family import Family

EXACT, REFUSED, WRONG, UNRENDERABLE = "exact", "refused", "WRONG", "unrenderable"
SAMPLED = (40, 41, 42)
"""Ids that stand for what the engine sampled; no template would write them."""
ARGS: tuple[Mapping[str, Any], ...] = ({}, {"enable_thinking": False})


@attrs.frozen
class Cell:
    """One answer of the kernel, judged."""

    family: str
    template: str
    shape: str
    verdict: str
    reason: str = ""
    questions: int = 0


@attrs.define
class Counting:
    """A `tokenize_fn` that counts what it is asked."""

    tokenize_fn: TokenizeFn
    asked: int = 0

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        self.asked += 1
        return self.tokenize_fn(messages, add_generation_prompt=add_generation_prompt)


def template_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("chat_template*.jinja"))


def cells(folder: Path, template: Path) -> Iterator[Cell]:
    """Yield a cell for each shape and template argument."""
    family = Family.load(folder, template=template.name)
    stops = frozenset(json.loads((folder / "meta.json").read_text())["stop_tokens"].values())
    for template_args in ARGS:
        for shape in range(len(cases(as_object=True, content=""))):
            yield _cell(folder.name, template.stem, family, shape, stops, template_args)


def _cell(
    name: str, template: str, family: Family, shape: int, stops: frozenset[int], args: Mapping[str, Any]
) -> Cell:
    """Judge the first way of writing the conversation that the template takes and shows."""
    case = cases(as_object=True, content="")[shape]
    label = f"{case.shape}{''.join(f', {key}={value}' for key, value in args.items())}"
    for content in ("", None, SPOKEN):
        for as_object in (True, False):
            case = cases(as_object=as_object, content=content)[shape]
            try:
                truth = tail(family, case, stops, args)
            except TemplateRefused:
                continue
            if truth is not None:
                return Cell(name, template, label, *judged(family, case, truth, stops, args))
    return Cell(name, template, label, UNRENDERABLE)


def judged(
    family: Family, case: Case, truth: Tail, stops: frozenset[int], args: Mapping[str, Any]
) -> tuple[str, str, int]:
    """Return verdict, reason of a refusal, and number of questions."""
    bound = family.tokenize_fn(tools=case.tools or None, **args)
    suffix, counting = suffix_ids(bound), Counting(bound)
    step = Step(
        prompt=case.history,
        completion=[case.turn],
        prompt_ids=bound(case.history, add_generation_prompt=True),
        completion_ids=[*SAMPLED, *_stop(case, truth, stops)],
        truncated=case.truncated,
    )
    found = answer(stitching([step], case.prompt, suffix), counting)
    if isinstance(found, Refusal) and found.reason is Reason.ODD_STOP:
        return _replaced(step, case, truth, suffix, bound)
    if isinstance(found, Refusal):
        return REFUSED, f"{found.reason.name}: {found.detail}", counting.asked
    return (EXACT if _true(found, step, truth, 0) else WRONG), "", counting.asked


def _stop(case: Case, truth: Tail, stops: frozenset[int]) -> list[int]:
    """Return what the model would have stopped with: the close itself where that is one of its stops."""
    if case.truncated:
        return []
    return [truth.ids[0] if truth.ids[0] in stops else max(stops)]


def _replaced(
    step: Step, case: Case, truth: Tail, suffix: tuple[int, ...], tokenize_fn: TokenizeFn
) -> tuple[str, str, int]:
    """Judge an odd stop: refused as it should be, and exact once the policy replaces it."""
    policy = Policy(odd_stop=OddStop.REPLACE)
    found = answer(stitching([step], case.prompt, suffix, policy=policy), tokenize_fn)
    if isinstance(found, Stitched) and _true(found, step, truth, 1):
        return REFUSED, "ODD_STOP: exact where the policy replaces the stop", 0
    return WRONG, "ODD_STOP replaced wrongly", 0


def _true(found: Stitched, step: Step, truth: Tail, dropped: int) -> bool:
    """Tell whether the ids are the step's, then the rest of the true tail, the close standing once."""
    kept = step.ids.tolist()[: len(step.ids) - dropped]
    written = int(not step.truncated and not dropped)
    return found.ids.tolist() == [*kept, *truth.ids[written:]]
