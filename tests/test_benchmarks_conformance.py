"""Peers beside the conformance vectors: they get the toy tokenizer, and what they do becomes an answer."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from rich.console import Console

from benchmarks.conformance.__main__ import PEERS, environment, fact, run_peer, table
from benchmarks.conformance.asked import NO_MATCH, Asked, NotOffered
from benchmarks.conformance.page import Result, markdown
from benchmarks.conformance.serve import answer
from benchmarks.conformance.toy_family import hf_tokenizer
from tito_io.conform.judge import Judged, Verdict, judge
from tito_io.conform.report import Report
from tito_io.conform.toy_tokenizer import ToyTokenizer
from tito_io.conform.vector import Vector, make_vectors

ADAPTERS = Path(__file__).parent.parent / "benchmarks" / "conformance" / "peers"
MOST_LINES = 100


@pytest.fixture(scope="module")
def vectors() -> dict[str, Vector]:
    names = ("/chatml/", "/mapping-arguments/", "/two-closes/", "/tools-with-question/", "refused/", "/cut/")
    others = ("trap/markers/question", "trap/seam/plain-close", "trap/restated/renamed-ids")
    return {one.id: one for name in (*names, *others) for one in make_vectors(name)}


@pytest.mark.parametrize(
    "name",
    [
        "valid/chatml/unicode",
        "valid/mapping-arguments/result",
        "trap/markers/question",
        "trap/seam/plain-close",
    ],
)
def test_the_tokenizer_for_peers_is_the_toy(vectors: dict[str, Vector], name: str) -> None:
    question = vectors[name].question
    tokenizer, toy = hf_tokenizer(question), ToyTokenizer.of(question["tokenizer"])
    text = tokenizer.apply_chat_template(
        question["messages"], tools=question["tools"], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == toy.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.eos_token_id == question["stop_ids"][0] or name == "trap/seam/plain-close"


def test_a_first_turn_is_rendered_as_the_oracle_renders_it(vectors: dict[str, Vector]) -> None:
    question = vectors["valid/tools-with-question/third-turn"].question
    step = question["trajectory"][0]
    rendered = hf_tokenizer(question).apply_chat_template(
        step["messages"], tools=question["tools"], add_generation_prompt=True, return_dict=False
    )
    assert rendered == step["prompt_ids"]


def asked(vector: Vector) -> Asked:
    return Asked(vector.question, None)


def test_a_question_is_split_at_the_longest_step(vectors: dict[str, Vector]) -> None:
    third = asked(vectors["valid/chatml/third-turn"])
    assert third.step is third.question["trajectory"][-1]
    assert third.before + third.new == third.question["messages"]
    assert third.ids == vectors["valid/chatml/third-turn"].answers[0]["ids"][: len(third.ids)]
    assert third.chatml
    assert not asked(vectors["valid/two-closes/result"]).chatml


@pytest.mark.parametrize("name", ["refused/edited-turn", "refused/nothing-new", "trap/restated/renamed-ids"])
def test_restated_requests_are_not_offered_by_peers_that_append(
    vectors: dict[str, Vector], name: str
) -> None:
    with pytest.raises(NotOffered, match=NO_MATCH):
        _ = asked(vectors[name]).step


def test_what_a_peer_does_becomes_an_answer(vectors: dict[str, Vector]) -> None:
    question = vectors["valid/chatml/question"].question

    def raising(error: Exception) -> dict[str, Any]:
        def next_prompt(_: Asked) -> list[int]:
            raise error

        return answer(next_prompt, question, None)

    assert answer(lambda one: one.ids, question, None) == {"ids": asked(vectors["valid/chatml/question"]).ids}
    assert answer(lambda _: None, question, None) == {"refusal": "it renders the whole conversation again"}
    assert raising(NotOffered("tools")) == {"not_offered": "tools"}
    assert raising(TemplateError("roles\nalternate")) == {"refusal": "raises TemplateError: roles alternate"}
    assert raising(KeyError("name")) == {"error": "raises KeyError: 'name'"}


@pytest.mark.parametrize("peer", PEERS)
def test_an_adapter_is_short_and_its_environment_is_pinned(peer: str) -> None:
    assert len((ADAPTERS / f"{peer}.py").read_text().splitlines()) <= MOST_LINES
    assert fact(peer, "PACKAGE") in environment(peer).pins()
    assert fact(peer, "OPERATION")


def test_a_page_has_every_program_and_where_ids_differ(vectors: dict[str, Vector]) -> None:
    def result(name: str, ids: list[int]) -> Result:
        chosen = [one for one in vectors.values() if one.id.startswith(("valid/chatml/q", "refused/window"))]
        return Result(name, "`call`", Report(name, [judge(one, {"ids": ids}) for one in chosen]))

    right = list(vectors["valid/chatml/question"].answers[0]["ids"])
    results = [result("one 1.0", right), result("other 2.0", [7])]
    text = markdown(results, date(2026, 11, 23))
    assert "| one 1.0 | 1 |  |  |  | 1 |  |" in text
    assert "- **other 2.0**: `call`. Wrong: refused/window, valid/chatml." in text
    assert "Measured on 23 November 2026" in text
    assert table(results).row_count == 2


def test_errors_are_named_apart(vectors: dict[str, Vector]) -> None:
    judged = [Judged(one, Verdict.ERROR, "no") for one in vectors.values() if one.id.startswith("trap/cut")]
    result = Result("one 1.0", "`call`", Report("one", judged))
    assert f"- **one 1.0**: `call`. Errors: trap/cut ({len(judged)})." in markdown(
        [result], date(2026, 11, 23)
    )


@pytest.mark.xdist_group("frameworks")
@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_answers_every_vector(vectors: dict[str, Vector], peer: str) -> None:
    wanted = [one.strip() for one in os.environ.get("TITO_CONFORMANCE", "").split(",")]
    if peer not in wanted:
        pytest.skip(f"needs the peer's packages: ask for it with TITO_CONFORMANCE={peer}")
    found = run_peer(peer, [one for one in vectors.values() if "/chatml/" in one.id], Console(stderr=True))
    assert [one.detail for one in found.report.judged if one.verdict is Verdict.ERROR] == []
