"""The benchmarks compare like with like: one answer, and figures that are those of what ran."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import attrs
import pytest

from benchmarks import measure
from benchmarks.clock import Timing, growth, race
from benchmarks.copies import packed
from benchmarks.hard import SHAPES, Shape
from benchmarks.history import History, histories
from benchmarks.index import told
from benchmarks.measure import LINEAR, DisagreementError, Point, expected_seconds
from benchmarks.peers.given import Given, digest
from benchmarks.programs import OWN, Program, floor
from benchmarks.targets import exponent
from benchmarks.voice import Listening, voice
from benchmarks.weight import stored, tokenized


@pytest.fixture(scope="module")
def made() -> list[History]:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("TITO_FAMILIES", raising=False)
        return histories(voice(), [3, 6], 5)


@pytest.mark.parametrize("program", OWN, ids=lambda program: program.name)
def test_every_program_answers_what_a_render_of_everything_gives(
    program: Program, made: list[History]
) -> None:
    for history in made:
        assert program.answer(history) == history.voice.tokenize(history.prompt, add_generation_prompt=True)


def test_a_program_that_answers_otherwise_stops_the_comparison(
    made: list[History], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = attrs.evolve(OWN[1], read=lambda ids: [*ids[:-1], ids[-1] + 1])
    monkeypatch.setattr(measure, "OWN", (OWN[0], wrong))
    with pytest.raises(DisagreementError, match=wrong.name):
        list(measure.linear(made[:1], [], print))


def test_a_refusal_is_no_agreement(made: list[History], monkeypatch: pytest.MonkeyPatch) -> None:
    silent = [attrs.evolve(program, read=lambda _: None) for program in OWN[:2]]
    monkeypatch.setattr(measure, "OWN", silent)
    with pytest.raises(DisagreementError):
        list(measure.linear(made[:1], [], print))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_step_continued_is_the_one_that_a_plain_comparison_finds(
    shape: Shape, made: list[History]
) -> None:
    points = list(measure.hard(made[:1], print))
    assert all(point.agrees for point in points if point.case == shape.name and point.program == "tito")
    assert [point.case for point in points].count(shape.name) == 2


def test_a_history_survives_the_way_to_a_peer(made: list[History], tmp_path: Path) -> None:
    given = told(made[1])
    assert Given.read(given.write(tmp_path)) == given
    assert sum(given.counts) == len(given.prompt_ids) + len(given.completion_ids)
    assert len(given.counts) == len(given.messages)


def test_setup_stands_outside_the_clock_and_first_calls_apart() -> None:
    calls: list[str] = []

    def prepare() -> partial[None]:
        calls.append("made")
        return partial(calls.append, "called")

    timing = race({"one": prepare})["one"]
    assert calls[:4] == ["made", "called", "made", "called"]
    assert timing.low <= timing.warm <= timing.high


def test_growth_is_the_slope_of_the_logarithms() -> None:
    points = [
        Point(LINEAR, 5, size, "p", Timing(0.0, float(size**2), 0.0, 0.0), agrees=True)
        for size in (10, 100, 1000)
    ]
    assert exponent(points, LINEAR, "p") == 2.0
    assert growth([10], [1]) is None
    assert expected_seconds([(10, 1.0), (100, 100.0)], 1000) == 10_000.0


def test_what_is_counted_is_what_the_tokenizer_gives(made: list[History]) -> None:
    listening = Listening(made[0].voice.tokenize)
    listening(made[0].messages, add_generation_prompt=False)
    assert listening.count == len(made[0].voice.tokenize(made[0].messages, add_generation_prompt=False))
    assert listening.replayed()((), add_generation_prompt=False) == listening.answers[0]
    assert tokenized(made[1])["MITO"] > tokenized(made[0])["MITO"]


def test_a_trajectory_holds_more_than_four_bytes_a_token_and_its_ids_pack_into_one_array(
    made: list[History],
) -> None:
    assert stored(made[1]) > 4
    assert packed(made[1].last.ids).tolist() == made[1].last.ids.tolist()


def test_the_floor_compares_equal_messages_that_share_nothing(made: list[History]) -> None:
    same, ids = floor(made[1])()
    assert same is True
    assert digest(ids) == digest(made[1].last.ids)
    assert json.loads(json.dumps(made[1].prompt)) == made[1].prompt
