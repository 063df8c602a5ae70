"""The benchmarks compare like with like: one answer, and figures that are those of what ran."""

from __future__ import annotations

import json
import random
import re
import sys
from functools import partial
from pathlib import Path

import attrs
import pytest

from benchmarks import audit as auditing
from benchmarks import measure
from benchmarks.clock import Timing, growth, race
from benchmarks.copies import packed
from benchmarks.drift.__main__ import main as drift
from benchmarks.drift.proof import Proof, proof
from benchmarks.drift.tap import packed as heard_ids
from benchmarks.drift.voice import KINDS, lean, of_sglang, of_vllm, raw
from benchmarks.hard import SHAPES, Shape
from benchmarks.history import History, histories
from benchmarks.index import told
from benchmarks.measure import LINEAR, DisagreementError, Point, expected_seconds
from benchmarks.peers.given import Given, digest
from benchmarks.programs import OWN, Program, floor
from benchmarks.targets import exponent
from benchmarks.voice import Listening, voice
from benchmarks.weight import stored, tokenized
from tests.core.samples.calls import call
from tito_core.samples import Forest, SampleOptions, StoredCall
from tito_io.embedded import write_family
from tito_io.families.family import Family
from tito_io.samples.read import StoredConversation
from tito_io.samples.rows import ConversationRows, to_rows

pytestmark = pytest.mark.usefixtures("light_heap")


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


# Drift.


def test_a_measured_run_keeps_every_id_that_was_heard_and_says_what_drifts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["drift", "--engine", "embedded", "--conversations", "3", "--turns", "6", "--json"]
    monkeypatch.setattr(sys, "argv", asked)
    with pytest.raises(SystemExit) as ended:
        drift()
    told = json.loads(capsys.readouterr().out)
    (found,) = told["found"]
    assert (ended.value.code, told["holds"], found["holds"]) == (0, True, True)
    assert found["proof"]["sampled"] == found["proof"]["trained"] > 100
    assert found["proof"]["calls"] == found["audit"]["calls"] == sum(found["routes"].values()) >= 18
    assert sum(rate["breaks"] for rate in found["causes"]) == found["audit"]["breaks"] > 0
    assert sum(told["acts"].values()) >= 18
    assert "random weights" in told["caveat"]


def proved(calls: list[StoredCall], heard: list[list[int]]) -> Proof:
    found = StoredConversation(name="c", forest=Forest.of(calls), first=1, last=1)
    return proof(to_rows([found], SampleOptions()), {"c": [heard_ids(ids) for ids in heard]})


def test_rows_are_proven_by_what_was_heard_and_by_nothing_less() -> None:
    calls = [
        call("turn-1", [1], [2, 3]),
        call("turn-2", [1, 2, 3, 4], [5]),
        call("turn-3", [1, 2, 3, 6], [7]),
    ]
    assert proved(calls, [[2, 3], [5], [7]]).holds
    assert proved(calls, [[2, 3], [5], [7]]).sampled == 4
    for heard, reason in (
        ([[2, 3], [5], [8]], "the 3. answer, 1 ids, does not train once"),
        ([[2, 3], [7], [5]], "the 2. answer"),
        ([[2, 3], [5], [7], [9]], "the 4. answer"),
        ([[2, 3], [5]], "3 calls train, and 2 answers were heard"),
    ):
        wrong = proved(calls, heard)
        assert not wrong.holds
        assert reason in "; ".join(wrong.wrong)


def test_a_row_whose_mask_lies_elsewhere_is_no_proof() -> None:
    (good,) = to_rows(
        [StoredConversation(name="c", forest=Forest.of([call("turn-1", [1, 4], [2, 3])]), first=1, last=1)],
        SampleOptions(),
    )
    assert isinstance(good, ConversationRows)
    (entry,) = good.entries
    moved = attrs.evolve(entry, row=attrs.evolve(entry.row, loss_mask=bytes([0, 1, 1, 0])))
    found = proof([attrs.evolve(good, entries=(moved,))], {"c": [heard_ids([2, 3])]})
    assert (found.sampled, found.trained, found.holds) == (2, 2, False)
    assert "the mask of row turn-1 is not on its turns" in found.wrong[0]


def test_what_a_model_is_made_to_say_parses_and_ends(tmp_path: Path) -> None:
    family = Family.load(write_family(tmp_path / "family"))
    for kind, (_, pattern) in KINDS.items():
        assert re.fullmatch(pattern, SPOKEN[kind]), kind
    for said, place in ((of_vllm, "structured_outputs"), (of_sglang, "regex")):
        leaning, loose = lean(family, said), raw(family, said)
        args = [voice.args(random.Random(1), cut=False) for voice in (leaning, loose)]  # noqa: S311  # seeded
        assert args[0]["seed"] == args[1]["seed"]
        assert place in args[0]
        assert len(args[0]["logit_bias"]) > len(args[1]["logit_bias"]) > 0
        assert "says" not in loose.patterns
        assert args == [voice.args(random.Random(1), cut=False) for voice in (leaning, loose)]  # noqa: S311  # likewise


CALLED = '<tool_call>\n{"name": "search", "arguments": {"query": "TODO", "limit": 3}}\n</tool_call>'
SPOKEN = {
    "says": "It is, the way. So it goes.",
    "thinks": "<think>\nIt is the way.\n</think>\n\nIt is the way.",
    "calls": CALLED,
    "says and calls": f"It is the way.\n\n{CALLED}",
    "thinks and calls": f"<think>\nIt is the way.\n</think>\n\n{CALLED}",
    "calls twice": f"{CALLED}\n{CALLED}",
    "calls tersely": CALLED.replace(": ", ":").replace(", ", ","),
}


def test_memory_is_looked_at_after_each_tenth_of_a_file(tmp_path: Path) -> None:
    family = write_family(tmp_path / "family")
    path = auditing.stored(tmp_path / "rollouts.jsonl", family, 20)
    spent = auditing.measured(path, family)
    assert len(spent.looks) == 10
    assert (spent.report.tally.conversations, spent.report.tally.calls) == (20, 80)
    assert min(spent.looks) > 10
