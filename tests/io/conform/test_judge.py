"""Verdicts: ids that differ are wrong, a refusal never is, and a malformed answer is an error."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tito_io.conform.judge import Verdict, judge
from tito_io.conform.vector import Vector


def right(vector: Vector) -> dict[str, Any]:
    return dict(vector.answers[0])


def spelled(ids: list[int]) -> list[int]:
    """Return ids with a word of two ids as one."""
    place = next(at for at, pair in enumerate(pairwise(ids)) if pair == (263, 264))
    return [*ids[:place], 265, *ids[place + 2 :]]


def test_right_ids_are_exact_with_and_without_spans(vectors: dict[str, Vector]) -> None:
    one = vectors["valid/chatml/question"]
    assert judge(one, right(one)).verdict is Verdict.EXACT
    assert judge(one, {"ids": right(one)["ids"]}).verdict is Verdict.EXACT
    assert judge(one, {"ids": right(one)["ids"], "refusal": None}).verdict is Verdict.EXACT


def test_each_of_several_right_answers_is_exact(vectors: dict[str, Vector]) -> None:
    one = vectors["trap/odd-stop/end-of-text"]
    assert len(one.answers) == 2
    assert {judge(one, answer).verdict for answer in one.answers} == {Verdict.EXACT}


def test_other_ids_are_wrong_and_the_first_difference_is_named(vectors: dict[str, Vector]) -> None:
    one = vectors["valid/chatml/question"]
    ids = list(right(one)["ids"])
    place = next(at for at, pair in enumerate(pairwise(ids)) if pair == (263, 264))
    judged = judge(one, {"ids": spelled(ids)})
    assert judged.verdict is Verdict.WRONG
    where = f"position {place} of {len(ids)}"
    assert judged.detail == f"earlier ids are changed: {where}: 263 'How' is right, given was 265 'However'"
    shown = str(judged.difference).splitlines()
    assert [line for line in shown if line.startswith(">")] == [
        f">{place:10}  263 'How'                     265 'However'",
    ]


@pytest.mark.parametrize(
    ("name", "changed", "cause"),
    [
        ("valid/chatml/question", spelled, "earlier ids are changed: the same text has other ids"),
        ("valid/chatml/question", lambda ids: ids[:-1], "the ids after the turn differ: the end is missing"),
        ("valid/chatml/question", lambda ids: [*ids, 10], "the ids after the turn differ: more ids follow"),
        (
            "valid/opens-thinking/question",
            lambda ids: [one for one in ids if one != 302],
            "earlier ids are changed: the special token '<think>' is missing",
        ),
        (
            "valid/chatml/question",
            lambda ids: [97, *ids[1:]],
            "earlier ids are changed: the special token '<|im_start|>' is missing",
        ),
        (
            "valid/chatml/question",
            lambda ids: [ids[0], 97, *ids[2:]],
            "earlier ids are changed: another text",
        ),
    ],
)
def test_the_cause_is_the_kind_of_the_first_difference(
    vectors: dict[str, Vector], name: str, changed: Callable[[list[int]], list[int]], cause: str
) -> None:
    judged = judge(vectors[name], {"ids": changed(right(vectors[name])["ids"])})
    assert (judged.verdict, judged.cause) == (Verdict.WRONG, cause)


def test_what_is_missing_at_the_end_is_after_the_turn(vectors: dict[str, Vector]) -> None:
    one = vectors["valid/chatml/question"]
    ids = right(one)["ids"]
    where = f"position {len(ids) - 1} of {len(ids)}"
    detail = f"the ids after the turn differ: {where}: 10 '\\n' is right, given was (the end)"
    assert judge(one, {"ids": ids[:-1]}).detail == detail


def test_wrong_spans_are_wrong(vectors: dict[str, Vector]) -> None:
    one = vectors["valid/chatml/question"]
    judged = judge(one, {**right(one), "spans": [[0, 1]]})
    assert (judged.verdict, judged.detail) == (
        Verdict.WRONG,
        "the ids are right; the spans are not: [[0, 1]]",
    )


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("valid/chatml/question", Verdict.OVER_REFUSED),
        ("trap/dependent/counts", Verdict.REFUSED),
        ("refused/edited-turn", Verdict.REFUSED),
    ],
)
def test_a_refusal_is_never_wrong(vectors: dict[str, Vector], name: str, verdict: Verdict) -> None:
    judged = judge(vectors[name], {"refusal": "so\nit is" + "x" * 999})
    assert judged.verdict is verdict
    assert judged.detail.startswith("so it is")
    assert len(judged.detail) < 210


def test_ids_where_a_refusal_is_required_are_wrong(vectors: dict[str, Vector]) -> None:
    judged = judge(vectors["refused/window"], {"ids": []})
    assert judged.verdict is Verdict.WRONG
    assert judged.detail == "answered, and a refusal is required: the template drops the turn"


def test_what_is_not_offered_and_errors_are_counted_apart(vectors: dict[str, Vector]) -> None:
    one = vectors["refused/window"]
    assert judge(one, {"not_offered": "no bridge"}).verdict is Verdict.NOT_OFFERED
    assert judge(one, {"error": "out of memory"}).detail == "the program reports: out of memory"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (7, "the answer is a number: give a JSON object"),
        ({}, "the answer has 0 of the fields ids, refusal, not_offered, error: give one"),
        ({"ids": [1], "refusal": "no"}, "the answer has 2 of the fields"),
        ({"ids": "1 2"}, "ids must be a list of whole numbers from 0 on"),
        ({"ids": [True]}, "ids must be a list of whole numbers from 0 on"),
        ({"ids": [-1]}, "ids must be a list of whole numbers from 0 on"),
    ],
)
def test_a_malformed_answer_is_an_error(vectors: dict[str, Vector], answer: object, said: str) -> None:
    judged = judge(vectors["valid/chatml/question"], answer)
    assert judged.verdict is Verdict.ERROR
    assert judged.detail.startswith(said)
