"""Judge a program's answer to a vector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import attrs

from tito_io.fields import json_kind

from .difference import Difference
from .scenario import NEVER
from .toy_tokenizer import ToyTokenizer
from .vector import Vector, is_ids

KINDS = ("ids", "refusal", "not_offered", "error")
"""The fields of which an answer has one."""
LONGEST = 200
"""The most characters of a program's own text that are shown."""


class Verdict(Enum):
    """The verdict on an answer; a program that failed a few times in a row is not asked again."""

    EXACT = "exact"
    REFUSED = "refused"
    OVER_REFUSED = "over-refused"
    NOT_OFFERED = "not offered"
    WRONG = "wrong"
    ERROR = "error"
    NOT_ASKED = "not asked"


@attrs.frozen
class Judged:
    """A vector and what became of it.

    Attributes:
        vector: The vector.
        verdict: The verdict.
        detail: Why, in a line; empty for exact ids.
        difference: Where the ids differ, if they do.
        cause: What is wrong, in words that other vectors may share.
    """

    vector: Vector
    verdict: Verdict
    detail: str = ""
    difference: Difference | None = None
    cause: str = attrs.field()

    @cause.default
    def _detail(self) -> str:
        return self.detail


def judge(vector: Vector, answer: object) -> Judged:
    """Return the verdict on an answer, which may be any JSON value.

    Ids that differ are wrong; a refusal of ids that can be had is not wrong, and is counted apart.
    """
    fault = _malformed(answer)
    if fault or not isinstance(answer, Mapping):
        return Judged(vector, Verdict.ERROR, fault)
    kind = next(name for name in KINDS if answer.get(name) is not None)
    if kind == "ids":
        return _judge_ids(vector, answer)
    words = " ".join(str(answer[kind]).split())  # a program's own text may be long
    text = words if len(words) <= LONGEST else f"{words[:LONGEST]}..."
    if kind == "refusal":
        verdict = Verdict.OVER_REFUSED if vector.refusal == NEVER else Verdict.REFUSED
        return Judged(vector, verdict, text)
    if kind == "not_offered":
        return Judged(vector, Verdict.NOT_OFFERED, text)
    return Judged(vector, Verdict.ERROR, f"the program reports: {text}")


def _malformed(answer: object) -> str:
    """Return what is wrong with an answer's form, nothing if it is right."""
    if not isinstance(answer, Mapping):
        return f"the answer is {json_kind(answer)}: give a JSON object"
    kinds = [name for name in KINDS if answer.get(name) is not None]
    if len(kinds) != 1:
        return f"the answer has {len(kinds)} of the fields {', '.join(KINDS)}: give one"
    if "ids" in kinds and not is_ids(answer["ids"]):
        return "ids must be a list of whole numbers from 0 on"
    return ""


def _judge_ids(vector: Vector, answer: Mapping[str, Any]) -> Judged:
    ids = answer["ids"]
    right = next((one for one in vector.answers if one["ids"] == ids), None)
    if right is None and not vector.answers:
        reason = vector.data["expected"].get("reason") or "no ids are right"
        text = f"answered, and a refusal is required: {reason}"
        return Judged(vector, Verdict.WRONG, text, cause="answered, and a refusal is required")
    if right is None:
        tokenizer = ToyTokenizer.of(vector.data["tokenizer"])
        found = (Difference(tuple(one["ids"]), tuple(ids), tokenizer) for one in vector.answers)
        difference = max(found, key=lambda one: one.place)  # from the right ids that they follow longest
        place = _place(vector, difference)
        text, cause = f"{place}: {difference.summary}", f"{place}: {difference.kind}"
        return Judged(vector, Verdict.WRONG, text, difference, cause=cause)
    spans = answer.get("spans")
    if spans is not None and spans != right["spans"]:
        text = "the ids are right; the spans are not"
        return Judged(vector, Verdict.WRONG, f"{text}: {spans!r:.100}", cause=text)
    return Judged(vector, Verdict.EXACT)


def _place(vector: Vector, difference: Difference) -> str:
    """Return whether ids of the trajectory were changed, or those after it."""
    steps = ([*one["prompt_ids"], *one["sampled_ids"]] for one in vector.data["trajectory"])
    kept = max((len(ids) for ids in steps if list(difference.right[: len(ids)]) == ids), default=0)
    return "earlier ids are changed" if difference.place < kept else "the ids after the turn differ"


def counted(judged: Iterable[Judged]) -> dict[str, Counter[Verdict]]:
    """Return how often each verdict was given, by set."""
    counts: dict[str, Counter[Verdict]] = {}
    for one in judged:
        counts.setdefault(one.vector.set, Counter())[one.verdict] += 1
    return counts
