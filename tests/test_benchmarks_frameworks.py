"""The comparison of frameworks: answers are judged by the whole render, counted, and shown on a page."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import attrs
import pytest
from jinja2 import Template
from transformers import AutoTokenizer

from benchmarks.frameworks.answers import DIFFERENT, EQUAL, RAISES, REFUSED, Answer, rows
from benchmarks.frameworks.measure import RenderCount, judged
from benchmarks.frameworks.page import markdown, page, picture
from benchmarks.frameworks.turns import NotOffered, Turn, continued, turns
from tito_core import Reason, Refusal
from tito_io.embedded import write_family
from tito_io.integrations.next_prompts import RefusedError

ANSWER = Answer("verl", "own", "qwen3", "user", "whole", EQUAL, "", 2, 0.5)


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> list[Turn]:
    tokenizer = AutoTokenizer.from_pretrained(write_family(tmp_path_factory.mktemp("family") / "model"))
    return list(turns(tokenizer, (1517, 1515)))


def test_a_turn_ends_in_three_ways(every: list[Turn]) -> None:
    endings = {turn.ending: turn for turn in every if turn.prompt.case == "user"}
    whole, cut, odd = (endings[name] for name in ("whole", "cut", "odd stop"))
    assert whole.ids[-1] == 1517
    assert whole.right == [whole.prompt.render]
    assert cut.ids == whole.ids[: len(cut.ids)]
    assert cut.right[0][: len(cut.ids)] == cut.ids
    assert odd.ids[-1] == 1515
    assert [ids[: len(odd.ids)] == odd.ids for ids in odd.right] == [True, False]


def test_an_answer_is_judged_by_what_is_right(every: list[Turn]) -> None:
    turn = every[0]

    def refuses(_: Turn) -> None:
        raise RefusedError(Refusal(Reason.ODD_STOP, "so"))

    def raises(_: Turn) -> None:
        raise ValueError("no\nsecond line")

    assert judged(lambda turn: turn.right[0], turn) == (EQUAL, "")
    assert judged(lambda turn: [*turn.ids, 7], turn) == (DIFFERENT, "the ids after the turn")
    assert judged(lambda _: [7], turn) == (DIFFERENT, "sampled ids changed")
    assert judged(lambda _: None, turn) == (REFUSED, "renders again, or ends")
    assert judged(refuses, turn) == (REFUSED, "ODD_STOP")
    assert judged(raises, turn) == (RAISES, "ValueError: no")


def test_a_turn_that_a_framework_does_not_have_is_not_counted(every: list[Turn]) -> None:
    def leaves_out(_: Turn) -> None:
        raise NotOffered

    with pytest.raises(NotOffered):
        judged(leaves_out, every[0])


def test_renders_are_counted() -> None:
    template, counted = Template("{{ word }}"), RenderCount()
    with counted.counting():
        assert [template.render(word="a"), template.render({"word": "b"})] == ["a", "b"]
    template.render(word="c")
    assert counted.count == 2


def test_an_answer_may_have_its_own_first_prompt(every: list[Turn]) -> None:
    turn = every[0]
    sampled, after = turn.ids[turn.start :], turn.right[0][len(turn.ids) :]
    assert continued(turn, [7], [7, *sampled, *after]) == turn.right[0]
    assert continued(turn, [7], [7, 8, *after]) == [7, 8, *after]


def test_rows_count_verdicts_and_take_medians_of_what_was_answered() -> None:
    others: list[dict[str, Any]] = [
        {"verdict": DIFFERENT, "renders": 4, "milliseconds": 1.5},
        {"verdict": EQUAL, "renders": 3, "milliseconds": 2.5},
        {"verdict": REFUSED, "renders": 99, "milliseconds": 99.0},
        {"way": "tito", "ending": "cut"},
    ]
    answers = [ANSWER, *(attrs.evolve(ANSWER, **changes) for changes in others)]
    own, tito = rows([Answer.read(one.line()) for one in answers], {"verl": "0.9.1"})
    assert (own.framework, own.way, own.ending, own.renders, own.milliseconds) == (
        *("verl 0.9.1", "own", "whole"),
        *(3, 1.5),
    )
    assert own.counts == {EQUAL: 2, DIFFERENT: 1, RAISES: 0, REFUSED: 1}
    assert (tito.way, tito.ending) == ("tito", "cut")


def test_a_page_shows_every_row_and_escapes_causes(tmp_path: Path) -> None:
    found = rows([ANSWER, attrs.evolve(ANSWER, way="tito")], {"verl": "0.9.1"})
    file = tmp_path / "page.html"
    file.write_text(page(found, ["1 <b>cause</b>"], date(2026, 11, 22)))
    text = file.read_text()
    assert text.count("verl 0.9.1") == 2
    assert "&lt;b&gt;cause" in text
    assert "2026-11-22" in text
    assert "<script" not in text


def test_a_table_and_a_picture_have_every_row() -> None:
    found = rows([ANSWER, attrs.evolve(ANSWER, way="tito", verdict=REFUSED, cause="so")], {"verl": "0.9.1"})
    lines = markdown(found, ["   1  verl, tito"]).splitlines()
    assert lines[:4] == [
        "| framework | turns | equal | different | equal with tito | different with tito |",
        "| --- | --- | --- | --- | --- | --- |",
        "| verl 0.9.1 | 1 | 1 | 0 | 0 | 0 |",
        "",
    ]
    assert lines[6] == "| verl 0.9.1 | own | whole | 1 |  |  |  | 2 | 0.5 |"
    assert lines[7] == "| verl 0.9.1 | tito | whole |  |  |  | 1 | 0 | 0.0 |"
    assert lines[8:] == ["", "- 1  verl, tito"]
    assert picture(found).count("<title>1 ") == 2
