"""NeMo Gym's captured calls and rollout records, to and from training rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frameworks.nemo.trainer import BrokenPromptError, trained_sequence
from tito_core import InputError
from tito_core.samples import Forest, RowPer, SampleOptions, make_rows
from tito_io.integrations.nemo_gym import captured_calls, output_items, read_capture, response_calls
from tito_io.samples.conversation import Problem
from tito_io.samples.read import conversations

ABC_DIGEST = "bf99633051449f0f3248b4995a7c8468b9561d7732447341916085f12ff9ff54"
"""Gym's own digest of the ids 1, 2, 3."""


def record(name: str, prompt: list[int], generated: list[int], **more: Any) -> dict[str, Any]:
    """Return a captured call of schema 1."""
    return {
        "schema_version": 1,
        "rollout_id": "r",
        "model_call_id": name,
        "model": "m",
        "prompt_token_ids": prompt,
        "generation_token_ids": generated,
        "generation_log_probs": [-float(one) for one in generated],
        "output_items": [],
        "token_item_index": None,
        **more,
    }


def item(prompt: list[int], generated: list[int], **more: Any) -> dict[str, Any]:
    values = {"prompt_token_ids": prompt, "generation_token_ids": generated}
    return {**values, "generation_log_probs": [-float(one) for one in generated], **more}


BRANCHES = [
    record("a", [1], [2, 3]),
    record("b", [1, 2, 3, 4], [5]),
    record("c", [1, 2, 3, 6], [7, 8]),  # a branch: the same turn before, other messages after it
    record("d", [9], [10]),  # another context
]


def test_captured_calls_become_rows_in_which_every_id_trains_once() -> None:
    rows = make_rows(Forest.of(captured_calls(BRANCHES, reward=0.5))).rows
    assert [(row.ids.tolist(), list(row.loss_mask), row.reward) for row in rows] == [
        ([1, 2, 3, 4, 5], [0, 1, 1, 0, 1], 0.5),
        ([1, 2, 3, 6, 7, 8], [0, 0, 0, 0, 1, 1], 0.5),
        ([9, 10], [0, 1], 0.5),
    ]


def test_rows_written_as_items_train_the_same_ids_in_nemo_rl() -> None:
    for row in make_rows(Forest.of(captured_calls(BRANCHES))).rows:
        found = trained_sequence(output_items(row))
        assert (found.ids, found.mask) == (row.ids.tolist(), list(row.loss_mask))
        trained = [value for value, on in zip(row.logprobs, row.loss_mask, strict=True) if on]
        assert [value for value, on in zip(found.logprobs, found.mask, strict=True) if on] == trained


def test_gyms_own_items_of_branches_train_in_nemo_rl_only_one_by_one() -> None:
    with pytest.raises(BrokenPromptError):
        trained_sequence(BRANCHES)


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 9), max_size=3), st.lists(st.integers(0, 9), min_size=1)),
        min_size=1,
        max_size=5,
    )
)
def test_a_rollout_is_read_and_written_back(turns: list[tuple[list[int], list[int]]]) -> None:
    output, ids = list[dict[str, Any]](), [99]
    for new, generated in turns:
        ids = [*ids, 98, *new]
        output.append(item(ids, generated))
        ids = [*ids, *generated]
    calls = response_calls({"response": {"id": "x", "output": output}, "reward": 1})
    (row,) = make_rows(Forest.of(calls)).rows
    assert trained_sequence(output_items(row)) == trained_sequence(output)
    assert [{key: one[key] for key in output[0]} for one in output_items(row)] == output
    assert row.reward == 1


def test_items_without_ids_are_no_calls() -> None:
    output = [{"type": "reasoning"}, item([1], [2], type="message"), {"type": "function_call_output"}]
    (call,) = response_calls({"response": {"output": [*output, item([1, 2, 3], [])]}})
    assert (call.name, call.ids.tolist(), call.reward) == ("response/0", [1, 2], None)
    assert call.metadata == {"type": "message"}


def test_the_last_call_has_the_reward() -> None:
    output = [item([1], [2]), item([1, 2, 3], [4])]
    calls = response_calls({"response": {"id": "x", "output": output}, "reward": 0.5})
    assert [(call.name, call.order, call.reward) for call in calls] == [("x/0", 0, None), ("x/1", 1, 0.5)]


def test_what_is_not_read_is_kept_as_metadata() -> None:
    (call,) = captured_calls([record("a", [1], [2], routed_experts="nrlre1:x", response_id="y")])
    assert call.metadata["routed_experts"] == "nrlre1:x"
    assert {"rollout_id", "model", "response_id", "output_items"} <= call.metadata.keys()


# Schema 5: a continuation stores only what is new of its prompt


def test_prompts_of_continuations_are_put_together_in_any_order() -> None:
    root = record("a", [1], [2], schema_version=5, parent_resolution="root")
    child = record("b", [3], [4], schema_version=5, prompt_is_delta=True, parent_call_id="a")
    third = record("c", [5], [6], schema_version=5, prompt_is_delta=True, parent_call_id="b")
    calls = {call.name: call.ids.tolist() for call in captured_calls([third, child, root])}
    assert calls == {"a": [1, 2], "b": [1, 2, 3, 4], "c": [1, 2, 3, 4, 5, 6]}


# Bad input


FIRST = record("a", [1], [2])
MISSING = "'b' continues .* which is not among the records: give all calls"
BAD_RECORDS: list[tuple[list[dict[str, Any]], str]] = [
    ([{**FIRST, "schema_version": 6}], "schema_version of call 'a' is 6: 1 to 5 are known"),
    ([{**FIRST, "schema_version": "1"}], "schema_version of call 'a' is '1'"),
    ([{**FIRST, "model_call_id": None}], "model_call_id is None: give a str"),
    ([{**FIRST, "prompt_token_ids": None}], "prompt_token_ids is None: give a list"),
    ([{**FIRST, "generation_token_ids": "x"}], "generation_token_ids is 'x': give a list"),
    ([{**FIRST, "generation_log_probs": []}], "logprobs has length 0 for 1 completion_ids"),
    ([{**FIRST, "prompt_token_ids": [-1]}], "prompt_ids"),
    ([FIRST, record("a", [1], [3])], "'a' has two records that differ"),
    ([record("a", [1, 2], [4], digest=ABC_DIGEST)], "digest of call 'a' is not that of its 3 ids"),
    *(
        ([FIRST, record("b", [3], [4], prompt_is_delta=True, parent_call_id=parent)], MISSING)
        for parent in ("z", "b", None, ["a"])
    ),
]


@pytest.mark.parametrize(("records", "error"), BAD_RECORDS)
def test_malformed_records_are_named(records: list[dict[str, Any]], error: str) -> None:
    with pytest.raises(InputError, match=error):
        captured_calls(records)


def test_a_call_may_stand_twice_and_have_a_digest() -> None:
    (call,) = captured_calls([record("a", [1, 2], [3], digest=ABC_DIGEST)] * 2)
    assert call.ids.tolist() == [1, 2, 3]


BAD_ROLLOUTS: list[tuple[dict[str, Any], str]] = [
    ({}, "response is None: give a dict"),
    ({"response": {}}, "output is None: give a list"),
    ({"response": {"output": None}}, "output is None: give a list"),
    ({"response": {"output": [item([1], [2]), [1, 2]]}}, r"output\[1\] is \[1, 2\]: give an object"),
    ({"mask_sample": True, "response": {"output": [item([1], [2])]}}, "mask_sample is true"),
]


@pytest.mark.parametrize(("result", "error"), BAD_ROLLOUTS)
def test_malformed_rollouts_are_named(result: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        response_calls(result)


def test_a_capture_that_is_incomplete_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "r.tokens.jsonl"
    file.write_text("\n".join(json.dumps(one) for one in BRANCHES) + "\n")
    assert [call.name for call in read_capture(file, reward=1.0)] == ["a", "b", "c", "d"]
    (tmp_path / "r.tokens.incomplete").touch()
    with pytest.raises(InputError, match=r"r\.tokens\.incomplete: a call of the rollout was not captured"):
        read_capture(file)


@pytest.mark.parametrize(("line", "error"), [('{"a": ', "is not valid JSON"), ("[1]", "is list: it must be")])
def test_a_broken_line_is_named(tmp_path: Path, line: str, error: str) -> None:
    file = tmp_path / "r.tokens.jsonl"
    file.write_text(line)
    with pytest.raises(InputError, match=error):
        read_capture(file)


def test_an_id_without_a_log_probability_cannot_be_written() -> None:
    calls = captured_calls([record("a", [1], [2, 3], generation_log_probs=[None, -1.0])])
    (row,) = make_rows(Forest.of(calls), SampleOptions(rows=RowPer.CALL)).rows
    with pytest.raises(InputError, match="row 'a': 1 ids that train have no log-probability"):
        output_items(row)


def rows_of_lines(path: Path, *records: dict[str, Any]) -> tuple[list[Any], list[Problem]]:
    """Return the rows and problems that `tito samples` finds in lines of Gym."""
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    found = list(conversations(path))
    stored = [one for one in found if not isinstance(one, Problem)]
    rows = [row for one in stored for row in make_rows(one.forest).rows]
    return rows, [one for one in found if isinstance(one, Problem)]


def test_captured_lines_make_the_rows_of_captured_calls(tmp_path: Path) -> None:
    delta = record("e", [4], [5], prompt_is_delta=True, parent_call_id="a", parent_resolution="resolved")
    for records in (BRANCHES, [BRANCHES[0], delta]):
        rows, problems = rows_of_lines(tmp_path / "r.tokens.jsonl", *records)
        assert not problems
        assert rows == list(make_rows(Forest.of(captured_calls(records))).rows)


def test_a_captured_line_that_continues_a_missing_one_is_named(tmp_path: Path) -> None:
    delta = record("e", [4], [5], prompt_is_delta=True, parent_call_id="gone")
    rows, (problem,) = rows_of_lines(tmp_path / "r.tokens.jsonl", BRANCHES[3], delta)
    assert len(rows) == 1
    assert str(problem) == "line 2: call 'e' continues 'gone', which is in no readable line before"


def test_a_captured_line_that_is_newer_or_changed_is_named(tmp_path: Path) -> None:
    newer, changed = record("a", [1], [2], schema_version=6), record("b", [1, 2], [4], digest=ABC_DIGEST)
    good = record("c", [1, 2], [3], digest=ABC_DIGEST)
    rows, problems = rows_of_lines(tmp_path / "r.tokens.jsonl", newer, changed, good)
    assert [row.name for row in rows] == ["c"]
    assert "schema_version of call 'a' is 6" in problems[0].reason
    assert "digest of call 'b'" in problems[1].reason


def test_an_incomplete_capture_is_refused_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "r.tokens.incomplete").touch()
    with pytest.raises(InputError, match=r"r\.tokens\.incomplete: a call of the rollout was not captured"):
        rows_of_lines(tmp_path / "r.tokens.jsonl", *BRANCHES)


def test_finished_rollouts_are_lines_with_their_rewards(tmp_path: Path) -> None:
    def rollout(name: str, *items: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"responses_create_params": {}, "response": {"id": name, "output": [*items]}, **more}

    good = rollout("x", item([1], [2]), item([1, 2, 3], [4]), reward=0.5)
    masked, bare = rollout("y", item([1], [2]), mask_sample=True), rollout("z", {"type": "message"})
    rows, problems = rows_of_lines(tmp_path / "rollouts.jsonl", good, masked, bare)
    assert [(row.name, row.ids.tolist(), row.reward) for row in rows] == [("x/1", [1, 2, 3, 4], 0.5)]
    assert [problem.line for problem in problems] == [2, 3]
    assert "mask_sample is true" in problems[0].reason
    assert "no output item of the rollout has generation_token_ids" in problems[1].reason
