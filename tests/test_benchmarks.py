"""Benchmarks compare programs that return the same ids, and report the figures of what ran."""

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
from benchmarks import footprint, measure
from benchmarks.branching import SHAPES, Shape
from benchmarks.clock import Timing, growth, race
from benchmarks.copies import packed
from benchmarks.data import FORMS, MOST, measure_stored
from benchmarks.drift.__main__ import main as drift
from benchmarks.drift.recorder import packed as recorded_ids
from benchmarks.drift.row_check import RowCheck, check_rows
from benchmarks.drift.sampling import KINDS, lean, of_sglang, of_vllm, raw
from benchmarks.footprint import bytes_a_token, tokenized
from benchmarks.history import History, histories
from benchmarks.measure import LINEAR, DisagreementError, Point, expected_seconds
from benchmarks.peer_process import history_file
from benchmarks.peers.history_file import HistoryFile
from benchmarks.programs import OWN, Program
from benchmarks.renderer import RecordingTokenize, load_renderer
from benchmarks.targets import exponent
from tests.core.samples.calls import call
from tito_core.samples import Forest, SampleOptions, StoredCall
from tito_io.embedded import write_family
from tito_io.families.family import Family
from tito_io.samples.read import StoredConversation
from tito_io.samples.rows import ConversationRows, to_rows

pytestmark = pytest.mark.usefixtures("light_heap")


@pytest.fixture(scope="module")
def short_histories() -> list[History]:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("TITO_FAMILIES", raising=False)
        return histories(load_renderer(), [3, 6], 5)


@pytest.mark.parametrize("program", OWN, ids=lambda program: program.name)
def test_every_program_returns_the_ids_of_a_full_render(
    program: Program, short_histories: list[History]
) -> None:
    for history in short_histories:
        assert program.answer(history) == history.renderer.tokenize(
            history.prompt, add_generation_prompt=True
        )


def test_imports_are_timed_with_compiled_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = (
        "import json, os, sys; from importlib.util import cache_from_source;"
        "assert sys.pycache_prefix and os.path.exists(cache_from_source(json.__file__))"
    )
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(footprint, "IMPORTS", {"json": compiled})
    monkeypatch.setattr(footprint, "TIMES", 1)
    assert footprint.imports().keys() == {"json"}


def test_a_program_that_returns_other_ids_stops_the_comparison(
    short_histories: list[History], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = attrs.evolve(OWN[1], read=lambda ids: [*ids[:-1], ids[-1] + 1])
    monkeypatch.setattr(measure, "OWN", (OWN[0], wrong))
    with pytest.raises(DisagreementError, match=wrong.name):
        list(measure.linear_points(short_histories[:1], [], print))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_continued_step_is_the_one_that_a_plain_comparison_finds(
    shape: Shape, short_histories: list[History]
) -> None:
    points = list(measure.branching_points(short_histories[:1], print))
    assert all(point.agrees for point in points if point.case == shape.name and point.program == "tito")
    assert [point.case for point in points].count(shape.name) == 2


def test_a_history_written_for_a_peer_reads_back_equal(
    short_histories: list[History], tmp_path: Path
) -> None:
    history_data = history_file(short_histories[1])
    assert HistoryFile.read(history_data.write(tmp_path)) == history_data
    assert sum(history_data.counts) == len(history_data.prompt_ids) + len(history_data.completion_ids)
    assert len(history_data.counts) == len(history_data.messages)


def test_setup_is_untimed_and_first_calls_are_separate() -> None:
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


def test_counted_tokens_are_those_that_the_tokenizer_returns(short_histories: list[History]) -> None:
    recording = RecordingTokenize(short_histories[0].renderer.tokenize)
    recording(short_histories[0].messages, add_generation_prompt=False)
    assert recording.count == len(
        short_histories[0].renderer.tokenize(short_histories[0].messages, add_generation_prompt=False)
    )
    assert recording.replayed()((), add_generation_prompt=False) == recording.answers[0]
    assert tokenized(short_histories[1])["MITO"] > tokenized(short_histories[0])["MITO"]


def test_a_trajectory_takes_more_than_four_bytes_a_token_and_its_ids_pack_into_one_array(
    short_histories: list[History],
) -> None:
    assert bytes_a_token(short_histories[1]) > 4
    assert packed(short_histories[1].last.ids).tolist() == short_histories[1].last.ids.tolist()


# Drift.


def test_a_drift_run_trains_every_recorded_id_and_reports_rates(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["drift", "--engine", "embedded", "--conversations", "3", "--turns", "6", "--json"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        drift()
    run = json.loads(capsys.readouterr().out)
    (result,) = run["results"]
    assert (ended.value.code, run["holds"], result["holds"]) == (0, True, True)
    assert result["row_check"]["sampled"] == result["row_check"]["trained"] > 100
    assert result["row_check"]["calls"] == result["audit"]["calls"] == sum(result["routes"].values()) >= 18
    assert sum(rate["breaks"] for rate in result["causes"]) == result["audit"]["breaks"] > 0
    assert sum(run["acts"].values()) >= 18
    assert "random weights" in run["caveat"]


def row_check(calls: list[StoredCall], recorded: list[list[int]]) -> RowCheck:
    result = StoredConversation(name="c", forest=Forest.of(calls), first=1, last=1)
    return check_rows(to_rows([result], SampleOptions()), {"c": [recorded_ids(ids) for ids in recorded]})


def test_a_row_check_holds_only_if_every_recorded_answer_trains_once() -> None:
    calls = [
        call("turn-1", [1], [2, 3]),
        call("turn-2", [1, 2, 3, 4], [5]),
        call("turn-3", [1, 2, 3, 6], [7]),
    ]
    assert row_check(calls, [[2, 3], [5], [7]]).holds
    assert row_check(calls, [[2, 3], [5], [7]]).sampled == 4
    for recorded, reason in (
        ([[2, 3], [5], [8]], "answer 3 (1 ids) does not train exactly once"),
        ([[2, 3], [7], [5]], "answer 2 "),
        ([[2, 3], [5], [7], [9]], "answer 4 "),
        ([[2, 3], [5]], "3 calls train, but 2 answers were recorded"),
    ):
        wrong = row_check(calls, recorded)
        assert not wrong.holds
        assert reason in "; ".join(wrong.wrong)


def test_a_row_check_fails_if_a_mask_lies_elsewhere() -> None:
    (good,) = to_rows(
        [StoredConversation(name="c", forest=Forest.of([call("turn-1", [1, 4], [2, 3])]), first=1, last=1)],
        SampleOptions(),
    )
    assert isinstance(good, ConversationRows)
    (entry,) = good.entries
    moved = attrs.evolve(entry, row=attrs.evolve(entry.row, loss_mask=bytes([0, 1, 1, 0])))
    result = check_rows([attrs.evolve(good, entries=(moved,))], {"c": [recorded_ids([2, 3])]})
    assert (result.sampled, result.trained, result.holds) == (2, 2, False)
    assert "the loss mask of row turn-1 does not cover exactly its turns" in result.wrong[0]


def test_sampling_styles_have_valid_patterns_and_seeded_arguments(tmp_path: Path) -> None:
    family = Family.load(write_family(tmp_path / "family"))
    for kind, (_, pattern) in KINDS.items():
        assert re.fullmatch(pattern, SAMPLED_TEXTS[kind]), kind
    for arguments_for, key in ((of_vllm, "structured_outputs"), (of_sglang, "regex")):
        leaning, loose = lean(family, arguments_for), raw(family, arguments_for)
        args = [style.args(random.Random(1), cut=False) for style in (leaning, loose)]  # noqa: S311  # seeded
        assert args[0]["seed"] == args[1]["seed"]
        assert key in args[0]
        assert len(args[0]["logit_bias"]) > len(args[1]["logit_bias"]) > 0
        assert "says" not in loose.patterns
        assert args == [style.args(random.Random(1), cut=False) for style in (leaning, loose)]  # noqa: S311  # likewise


CALLED = '<tool_call>\n{"name": "search", "arguments": {"query": "TODO", "limit": 3}}\n</tool_call>'
SAMPLED_TEXTS = {
    "says": "It is, the way. So it goes.",
    "thinks": "<think>\nIt is the way.\n</think>\n\nIt is the way.",
    "calls": CALLED,
    "says and calls": f"It is the way.\n\n{CALLED}",
    "thinks and calls": f"<think>\nIt is the way.\n</think>\n\n{CALLED}",
    "calls twice": f"{CALLED}\n{CALLED}",
    "calls tersely": CALLED.replace(": ", ":").replace(", ", ","),
}


def test_a_stored_rollout_grows_with_its_turns() -> None:
    results = [one for turns in (10, 40) for one in measure_stored(turns)]
    assert [(one.form, one.turns) for one in results] == [
        (form, turns) for turns in (10, 40) for form in FORMS
    ]
    assert max(one.ratio for one in results) < MOST
    assert results[3].stored_bytes < 5 * results[1].stored_bytes
    assert min(min(one.dump, one.load) for one in results) > 0


def test_memory_is_read_after_each_tenth_of_a_file(tmp_path: Path) -> None:
    family = write_family(tmp_path / "family")
    path = auditing.write_conversations(tmp_path / "rollouts.jsonl", family, 20)
    cost = auditing.measure_audit(path, family)
    assert len(cost.readings) == 10
    assert (cost.report.tally.conversations, cost.report.tally.calls) == (20, 80)
    assert min(cost.readings) > 10
