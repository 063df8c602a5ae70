"""tito's kernel agrees with the oracle on every vector, in each way to ask it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tito_core import Refusal, Stitched, try_stitch
from tito_core.errors import InputError
from tito_core.seams.suffix import suffix_ids
from tito_io.conform import naive, reference
from tito_io.conform.judge import Verdict, judge
from tito_io.conform.vector import Vector

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "conform.md"


@pytest.mark.whole
def test_the_reference_is_exact_or_refuses_rightly(vectors: dict[str, Vector]) -> None:
    judged = [judge(one, reference.answer(one.question)) for one in vectors.values()]
    bad = [one for one in judged if one.verdict not in (Verdict.EXACT, Verdict.REFUSED)]
    assert [(one.vector.id, one.detail) for one in bad] == []
    exact, refused = (sum(one.verdict is kind for one in judged) for kind in (Verdict.EXACT, Verdict.REFUSED))
    assert f"│ all     │ {exact:5} │ {refused:7} │" in PAGE.read_text(encoding="utf-8")


def test_the_reference_gives_spans_and_refuses_little(vectors: dict[str, Vector]) -> None:
    answers = {name: reference.answer(one.question) for name, one in vectors.items() if one.set == "trap"}
    refused = [name for name, one in answers.items() if "refusal" in one]
    without_spans = [name for name, one in answers.items() if "ids" in one and "spans" not in one]
    assert len(refused) <= 8
    assert len(without_spans) <= 2


def test_a_stitch_without_a_profile_is_never_wrong(vectors: dict[str, Vector]) -> None:
    exact = 0
    for one in list(vectors.values())[::3]:
        judged = judge(one, _stitched(one))
        assert judged.verdict not in (Verdict.WRONG, Verdict.ERROR), (one.id, judged.detail)
        exact += judged.verdict is Verdict.EXACT
    assert exact > 50


def _stitched(vector: Vector) -> dict[str, object]:
    question = vector.question
    ask = reference.tokenize_fn(question)
    try:
        suffix = suffix_ids(ask)
    except InputError as error:
        return {"refusal": str(error)}
    steps = [reference.step(one) for one in question["trajectory"]]
    found = try_stitch(steps, question["messages"], suffix, ask)  # strict: it knows no stops
    assert isinstance(found, Stitched | Refusal)
    return {"refusal": found.reason.name} if isinstance(found, Refusal) else {"ids": found.ids.tolist()}


FAILS = (
    "refused/",
    "trap/spelling/",
    "trap/seam/after-generation-prompt",
    "trap/seam/line-break-before-stop-apart",
    "trap/seam/plain-close",
    "trap/cut/in-character",
    "trap/cut/merges-with-close",
    "trap/reasoning/before-question",
    "trap/reasoning/empty-block",
    "trap/calls/compact",
    "trap/calls/text-before",
    "trap/restated/trimmed",
    "trap/dependent/counts",
    "trap/dependent/tools-move",
    "trap/dependent/window",
)
"""What a program that renders everything again gets wrong."""


def test_the_naive_program_falls_into_its_traps(vectors: dict[str, Vector]) -> None:
    judged = {name: judge(one, naive.answer(one.question)) for name, one in vectors.items()}
    for start in FAILS:
        verdicts = {one.verdict for name, one in judged.items() if name.startswith(start)}
        assert Verdict.WRONG in verdicts, start
    assert judged["valid/chatml/result"].verdict is Verdict.EXACT
    assert judged["refused/alternates/late-system"].verdict is Verdict.REFUSED
    assert not any(one.verdict is Verdict.ERROR for one in judged.values())
