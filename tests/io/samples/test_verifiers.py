"""What verifiers saves: results of 0.1 with their trajectories, and traces of 0.4.

The records have the shapes that those releases' own code writes (`save_outputs`, `write_episode`).
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.io.samples.sample_files import dumped, put, read
from tito_core.samples import Ending, make_rows

CALL = {"id": "c1", "name": "add", "arguments": '{"a":1}'}
ASKED = {"role": "user", "content": "q"}
CALLED = {"role": "assistant", "tool_calls": [CALL]}


def tokens(prompt: list[int], ids: list[int]) -> dict[str, Any]:
    return {
        "prompt_ids": prompt,
        "prompt_mask": [0] * len(prompt),
        "completion_ids": ids,
        "completion_mask": [1] * len(ids),
        "completion_logprobs": [-0.5] * len(ids),
    }


def step(prompt: list[Any], said: dict[str, Any], held: dict[str, Any], finish: str) -> dict[str, Any]:
    cut = {"overlong_prompt": False, "is_truncated": False, "routed_experts": None}
    message = {**said, "finish_reason": finish, "is_truncated": finish == "length", "tokens": held}
    return {
        "prompt": prompt,
        "completion": [said],
        "response": {"id": "r", "created": 1, "model": "m", "message": message},
        "tokens": {**held, **cut},
        "reward": 1.0,
        "advantage": 0.25,
        "is_truncated": finish == "length",
        "trajectory_id": "t0",
        "extras": {},
    }


TOOL = {"role": "tool", "tool_call_id": "c1", "content": "2"}
RESULT: dict[str, Any] = {
    "example_id": 7,
    "task": "adding",
    "prompt": [ASKED],
    "completion": [],
    "reward": 1.0,
    "metrics": {},
    "trajectory": [
        step([ASKED], CALLED, tokens([1, 2, 3], [10, 11, 4]), "tool_calls"),
        step(
            [ASKED, CALLED, TOOL],
            {"role": "assistant", "content": "hi"},
            tokens([1, 2, 3, 10, 11, 4, 20, 21], [12, 13]),
            "length",
        ),
    ],
}


def test_a_result_is_a_conversation(tmp_path: Path) -> None:
    (stored,), problems = read(put(tmp_path, dumped(RESULT)), form="verifiers")
    assert (problems, stored.name) == ([], "t0")
    first, second = stored.forest.calls
    assert (first.name, second.name, stored.forest.path("t0.1")) == ("t0.0", "t0.1", ("t0.0", "t0.1"))
    assert first.step.logprobs == (-0.5, -0.5, -0.5)
    assert (first.order, second.order) == (0, 1)
    assert (first.reward, first.metadata) == (1.0, {"example_id": 7, "task": "adding", "advantage": 0.25})
    assert (first.ending, second.ending) == (Ending.WHOLE, Ending.TRUNCATED)
    (row,) = make_rows(stored.forest).rows
    assert list(row.loss_mask) == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_tool_calls_are_those_of_the_chat_api(tmp_path: Path) -> None:
    (stored,), _ = read(put(tmp_path, dumped(RESULT)))
    first, second = stored.forest.calls
    function = {"name": "add", "arguments": '{"a":1}'}
    assert first.step.completion[0]["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]
    assert second.step.prompt[1] == first.step.completion[0]


@pytest.mark.parametrize(
    ("call", "chat"),
    [
        ({"id": "c", "name": "f"}, {"id": "c", "type": "function", "function": {"name": "f"}}),
        (
            {"name": "f", "arguments": "{}"},
            {"id": None, "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ),
        ({"id": "c", "function": {"name": "f"}, "name": "g"}, None),
        ({"id": "c", "arguments": "{}"}, None),
        ("odd", None),
    ],
)
def test_only_a_call_in_verifiers_own_form_changes(tmp_path: Path, call: Any, chat: Any) -> None:
    record = copy.deepcopy(RESULT)
    record["trajectory"][0]["completion"] = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    (stored,), _ = read(put(tmp_path, dumped(record)))
    (found,) = stored.forest.calls[0].step.completion[0]["tool_calls"]
    assert found == (call if chat is None else chat)


def test_ids_are_those_before_the_maximum_length_cut_them(tmp_path: Path) -> None:
    cut = copy.deepcopy(RESULT)
    cut["trajectory"][1]["tokens"] |= {
        "prompt_ids": [1, 2, 3],
        "completion_ids": [],
        "completion_logprobs": [],
        "overlong_prompt": True,
        "is_truncated": True,
    }
    assert read(put(tmp_path, dumped(cut)))[0][0].forest == read(put(tmp_path, dumped(RESULT)))[0][0].forest
    for one in cut["trajectory"]:
        one["is_truncated"] = True  # what was cut are its own ids alone
    assert read(put(tmp_path, dumped(cut)))[0][0].forest == read(put(tmp_path, dumped(RESULT)))[0][0].forest
    for one in cut["trajectory"]:
        one["is_truncated"] = False
    del cut["trajectory"][1]["response"]
    (stored,), _ = read(put(tmp_path, dumped(cut)))
    assert [call.ending for call in stored.forest.calls] == [Ending.WHOLE, Ending.EMPTY]


def test_a_step_without_its_response_is_read_from_its_tokens(tmp_path: Path) -> None:
    bare = copy.deepcopy(RESULT)
    for one in bare["trajectory"]:
        del one["response"], one["trajectory_id"], one["reward"]
    bare["trajectory"][0]["prompt"] = "once"
    (stored,), _ = read(put(tmp_path, dumped(bare)))
    first, second = stored.forest.calls
    assert (first.name, first.reward, first.finish_reason) == ("line-1.0", 1.0, None)
    assert first.step.prompt[0] == {"role": "text", "content": "once"}
    assert second.step.truncated


def test_a_step_without_tokens_is_a_problem_and_the_others_stay(tmp_path: Path) -> None:
    broken = copy.deepcopy(RESULT)
    broken["trajectory"][0]["response"] = None
    broken["trajectory"][0]["tokens"] = None
    (stored,), (problem,) = read(put(tmp_path, dumped(broken)))
    assert [call.name for call in stored.forest.calls] == ["t0.1"]
    assert (
        str(problem)
        == "line 1: step t0.0: it has no tokens: run verifiers with a client that requests token ids"
    )


@pytest.mark.parametrize(("rows", "start"), [(6, 0), (5, 0), (3, 3), (2, 3)])
def test_routed_experts_begin_where_their_number_says(tmp_path: Path, rows: int, start: int) -> None:
    routed = copy.deepcopy(RESULT)
    table = [[[row, row + 1]] for row in range(rows)]
    routed["trajectory"][0]["response"]["message"]["tokens"]["routed_experts"] = table
    (stored,), _ = read(put(tmp_path, dumped(routed)))
    experts = stored.forest.calls[0].routed_experts
    assert experts is not None
    assert (experts.shape, experts.start, experts.dtype) == ((rows, 1, 2), start, "int32")
    assert experts.data[:8] == bytes((0, 0, 0, 0, 1, 0, 0, 0))


def test_routed_experts_of_two_sampled_ids_may_be_one_row(tmp_path: Path) -> None:
    routed = copy.deepcopy(RESULT)
    tokens = routed["trajectory"][0]["response"]["message"]["tokens"]
    tokens |= {name: value[:2] for name, value in tokens.items() if name.startswith("completion_")}
    tokens["routed_experts"] = [[[0, 1]]]
    (stored,), _ = read(put(tmp_path, dumped(routed)))
    experts = stored.forest.calls[0].routed_experts
    assert experts is not None
    assert (experts.shape, experts.start) == ((1, 1, 2), 3)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ([[[1]]], "1 rows of routed experts for 3 prompt and 3 sampled ids"),
        ([[["a"]]] * 6, "is not a table"),
        ([[{"a": 1}]] * 6, "is not a table"),
        ([[[]]] * 6, "shape"),
        ([[[1]], [[1, 2]]] * 3, "needs"),
        ({"data": "x"}, "`routed_experts` is dict"),
    ],
)
def test_routed_experts_that_do_not_fit_are_a_problem(tmp_path: Path, table: Any, told: str) -> None:
    routed = copy.deepcopy(RESULT)
    routed["trajectory"][0]["response"]["message"]["tokens"]["routed_experts"] = table
    _, (problem,) = read(put(tmp_path, dumped(routed)))
    assert told in problem.reason


# Traces.


def node(
    parent: int | None, role: str, text: str, ids: list[int], own: int | None = None, **message: Any
) -> dict[str, Any]:
    """Return a node; of a sampled one the first `own` ids belong to its prompt."""
    sampled = own is not None
    mask = [own is not None and place >= own for place in range(len(ids))]
    return {
        **({} if parent is None else {"parent": parent}),
        "message": {"role": role, "content": text, **message},
        "sampled": sampled,
        "token_ids": ids,
        "mask": mask,
        "is_content": [],
        "logprobs": [-0.1235] * sum(mask),
    }


TRACE: dict[str, Any] = {
    "version": 1,
    "id": "t",
    "task": {"type": "T", "data": {}, "key": "k"},
    "agent": {"config": {}, "name": "solver", "trainable": True},
    "nodes": [
        node(None, "user", "q", [1, 2]),
        node(0, "assistant", "hi", [3, 10, 11, 4], 1),
        node(1, "user", "more", [20, 21]),
        node(2, "assistant", "", [22, 12, 13], 1, tool_calls=[CALL]),
        node(1, "user", "other", [30, 31]),
        node(4, "assistant", "left", [22, 14], 1),
    ],
    "calls": [{"node": 1, "finish_reason": "stop"}, {"node": 3, "finish_reason": "length"}, {"node": 5}],
    "rewards": {"main": {"score": 0.5, "weight": 2.0}, "other": None},
}
JUDGE = {**TRACE, "id": "j", "agent": {"name": "judge", "trainable": False}}
TRACES: dict[str, Any] = {"id": "e", "env": {"id": "e"}, "traces": [TRACE, JUDGE], "ok": True}


def test_a_trace_is_a_conversation_and_its_branches_are_calls(tmp_path: Path) -> None:
    (stored,), problems = read(put(tmp_path, dumped(TRACES)), form="traces")
    assert (problems, stored.name) == ([], "t")
    calls = {call.name: call for call in stored.forest.calls}
    assert {name: call.ids.tolist() for name, call in calls.items()} == {
        "t.1": [1, 2, 3, 10, 11, 4],
        "t.3": [1, 2, 3, 10, 11, 4, 20, 21, 22, 12, 13],
        "t.5": [1, 2, 3, 10, 11, 4, 30, 31, 22, 14],
    }
    assert stored.forest.leaves == ("t.3", "t.5")
    assert calls["t.3"].step.prompt_ids.extends(calls["t.1"].ids)
    assert calls["t.3"].step.logprobs == (-0.1235, -0.1235)
    assert [calls[name].ending for name in ("t.1", "t.3", "t.5")] == [
        Ending.WHOLE,
        Ending.TRUNCATED,
        Ending.WHOLE,
    ]
    assert (calls["t.1"].reward, calls["t.1"].metadata) == (1.0, {"task": "k", "agent": "solver"})
    assert [(span.origin.name, span.stop) for span in calls["t.3"].step.prompt_ledger.spans] == [
        ("PROMPT", 2),
        ("GENERATION_PROMPT", 3),
        ("SAMPLED", 6),
        ("ENVIRONMENT", 8),
        ("GENERATION_PROMPT", 9),
    ]


def test_a_line_may_hold_several_traces_or_be_one(tmp_path: Path) -> None:
    other = {**TRACE, "id": "u", "rewards": {}}
    stored, _ = read(put(tmp_path, dumped({**TRACES, "traces": [TRACE, other]})))
    assert [(one.name, one.forest.calls[0].reward) for one in stored] == [("t", 1.0), ("u", None)]
    stored, _ = read(put(tmp_path, dumped(TRACE, {**TRACES, "traces": []}, other)))
    assert [one.name for one in stored] == ["t", "u"]
    stored, _ = read(put(tmp_path, dumped({**TRACES, "traces": [JUDGE, other]})))
    assert [one.name for one in stored] == ["u"]  # a judge does not train, and keeps no other from it


def test_a_conversation_that_comes_again_is_a_problem(tmp_path: Path) -> None:
    for record in (TRACE, RESULT):
        (_,), (problem,) = read(put(tmp_path, dumped(record, record)))
        assert "also has earlier lines" in problem.reason


def test_a_long_trace_needs_no_recursion(tmp_path: Path) -> None:
    nodes = [node(None, "user", "q", [1])]
    nodes += [node(place, "user", "q", [place]) for place in range(3000)]
    nodes += [node(3000, "assistant", "a", [7, 8], 1)]
    (stored,), problems = read(put(tmp_path, dumped({**TRACE, "nodes": nodes, "calls": []})))
    assert problems == []
    assert len(stored.forest.calls[0].ids) == 3003


@pytest.mark.parametrize(
    ("at", "change", "told"),
    [
        (1, {"token_ids": []}, "node 1 was sampled, but has no token_ids"),
        (1, {"mask": [False, True]}, "2 mask values of node 1 for 4 token_ids"),
        (1, {"mask": [True, True, False, True]}, "has unsampled ids between sampled ones"),
        (1, {"logprobs": [-1.0]}, "1 log-probabilities for 3 sampled ids"),
        (1, {"parent": 5}, "node 1 has the parent 5"),
        (0, {"token_ids": [-1]}, "negative id"),
        (0, {"message": {"content": "x"}}, "has no role"),
        (0, {"message": "x"}, "'s `message` is str"),
    ],
)
def test_a_node_that_does_not_hold_together_is_a_problem_of_what_follows(
    tmp_path: Path, at: int, change: dict[str, Any], told: str
) -> None:
    broken = copy.deepcopy(TRACE)
    broken["nodes"][at].update(change)
    stored, problems = read(put(tmp_path, dumped(broken)))
    assert stored == []
    assert [problem.line for problem in problems] == [1]  # three branches have it, and it is told once
    assert told in problems[0].reason


@pytest.mark.parametrize(
    ("mask", "prompt", "sampled"),
    [([True, True], [1], [2, 3]), ([False, False], [1, 2, 3], []), ([False, True], [1, 2], [3])],
)
def test_a_node_s_mask_says_which_of_its_ids_were_sampled(
    tmp_path: Path, mask: list[bool], prompt: list[int], sampled: list[int]
) -> None:
    said = {**node(0, "assistant", "yes", [2, 3], 0), "mask": mask, "logprobs": [-0.5] * len(sampled)}
    trace = {**TRACE, "nodes": [node(None, "user", "q", [1]), said], "calls": []}
    (stored,), problems = read(put(tmp_path, dumped(trace)))
    assert problems == []
    (call,) = stored.forest.calls
    assert (call.step.prompt_ids.tolist(), call.step.completion_ids.tolist()) == (prompt, sampled)


@pytest.mark.parametrize("ids", [None, [], "missing"])
def test_a_node_that_was_not_sampled_may_have_no_ids(tmp_path: Path, ids: Any) -> None:
    asked: dict[str, Any] = {**node(None, "user", "q", [1]), "token_ids": ids}
    if ids == "missing":
        del asked["token_ids"]
    trace = {**TRACE, "nodes": [asked, node(0, "assistant", "yes", [2, 3], 1)], "calls": []}
    (stored,), problems = read(put(tmp_path, dumped(trace)))
    assert problems == []
    assert stored.forest.calls[0].ids.tolist() == [2, 3]


@pytest.mark.parametrize(
    ("values", "found"),
    [(None, None), ("odd", None), ([], None), ([-0.5, -0.25, 0.0], (-0.5, -0.25, 0.0))],
)
def test_log_probabilities_that_verifiers_left_out_are_none(tmp_path: Path, values: Any, found: Any) -> None:
    record = copy.deepcopy(RESULT)
    record["trajectory"][0]["response"]["message"]["tokens"]["completion_logprobs"] = values
    (stored,), problems = read(put(tmp_path, dumped(record)))
    assert (problems, stored.forest.calls[0].step.logprobs) == ([], found)
