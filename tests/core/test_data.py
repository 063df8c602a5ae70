"""Values become plain data and come back, and wrong data are named by their place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core import example
from tito_core import InputError, OddStop, Policy, Step, Trajectory, Truncated, answer, stitch_questions
from tito_core.data import from_data, to_data
from tito_core.normalization.receipts import Forgiveness
from tito_core.samples import MissingRow, Owner, RoutedExperts, SampleOptions, StoredCall, WeightVersion
from tito_core.seams.profile import Profile
from tito_core.stitch import Stitched

DATA: dict[str, Any] = {
    "prompt": [{"role": "user", "content": "hi"}],
    "completion": [{"role": "assistant", "content": "hello"}],
    "prompt_ids": [1, 2],
    "completion_ids": [3, 4],
    "logprobs": [-0.5, None],
    "truncated": True,
    "key": "k",
    "prompt_ledger": [["prompt", 1], ["sampled", 1]],
}


def test_a_step_is_plain_data_and_comes_back() -> None:
    step = from_data(DATA, Step)
    assert json.loads(json.dumps(to_data(step))) == DATA
    assert from_data(to_data(step), Step) == step
    assert isinstance(step, Step)
    assert step.logprobs == (-0.5, None)
    assert step.prompt_ledger.mask() == [0, 1]


def test_a_trajectory_is_what_each_step_adds() -> None:
    (first,) = Trajectory([example.step()])
    found = answer(stitch_questions([first], example.prompt(first), (example.CLOSE,)), example.tokenize)
    assert isinstance(found, Stitched)
    second = found.then(completion=[example.assistant("b")], completion_ids=[7, 2])
    trajectory = Trajectory([first]).append(second)
    data = json.loads(json.dumps(to_data(trajectory)))
    assert len(data["steps"]) == len(data["checks"]) == 2
    added = data["steps"][1]
    assert added["prompt_ids"] == list(found.added)
    assert (added["shared_prompt"], added["shared_ids"], added["shared_ledger"]) == ([0, 2], [0, 10], [0, 7])
    assert [name for name, _ in added["prompt_ledger"]] == ["sampled", "environment", "generation_prompt"]
    again = from_data(data, Trajectory)
    assert again == trajectory
    assert isinstance(again, Trajectory)
    assert again[1].ids.extends(again[0].ids)


def test_a_policy_is_shown_by_the_names_of_its_choices() -> None:
    policy = Policy(
        truncated=Truncated.REFUSE,
        odd_stop=OddStop.KEEP,
        forgive=[Forgiveness.RENAMED_TOOL_IDS, Forgiveness.DROPPED_REASONING],
        further_keys={"tools", "audio"},
    )
    data = {
        "truncated": "refuse",
        "odd_stop": "keep",
        "forgive": ["dropped_reasoning", "renamed_tool_ids"],
        "further_keys": ["audio", "tools"],
    }
    assert to_data(policy) == data
    assert from_data(data, Policy) == policy
    assert from_data({}, Policy) == Policy()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"prompt_ids": [-1]}, r"Step.prompt_ids: ids\[0\] is -1"),
        ({"completion_ids": "x"}, "Step.completion_ids: ids must be a sequence of ids, not str"),
        ({"prompt": [{}]}, r"Step.prompt: prompt\[0\] has no role"),
        ({"logprobs": [0.0]}, "logprobs has length 1 for 2"),
        ({"prompt_ledger": [["prompt", 5]]}, "prompt_ledger covers 5 ids, prompt_ids has 2"),
        ({"prompt_ledger": [["nobody", 2]]}, "Step.prompt_ledger: 'nobody' is not one of prompt, sampled"),
        ({"prompt_ledger": [["prompt", -2]]}, "Step.prompt_ledger: prompt_ledger counts must be whole"),
        ({"prompt_ledger": [["prompt", True]]}, "Step.prompt_ledger: prompt_ledger counts must be whole"),
        ({"logprobs": ["0.5", None]}, r"logprobs\[0\] is '0.5': give a number or None"),
        ({"prompt_ledger": [["a @ b", 2]]}, "^Step.prompt_ledger: 'a @ b' is not one of prompt, sampled"),
        ({"more": 1, "and": 2}, r"Step: unknown keys: and, more"),
    ],
)
def test_wrong_data_are_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_data({**DATA, **wrong}, Step)


def test_missing_data_are_named_all_at_once() -> None:
    with pytest.raises(InputError) as caught:
        from_data({}, Step)
    keys = ("prompt", "completion", "prompt_ids", "completion_ids")
    assert str(caught.value).split("; ") == [f"Step.{key}: the key '{key}' is missing" for key in keys]


def test_a_ledger_may_have_empty_runs() -> None:
    step = from_data({**DATA, "prompt_ledger": [["sampled", 0], ["prompt", 2]]}, Step)
    assert to_data(step)["prompt_ledger"] == [["prompt", 2]]


def test_ids_are_integers_not_strings() -> None:
    with pytest.raises(InputError, match=r"^Profile\.suffix: ids\[0\] is '7': an id is a whole number"):
        from_data({"suffix": ["7"]}, Profile)


def test_unknown_keys_are_named_wherever_they_are() -> None:
    with pytest.raises(InputError, match=r"Policy: unknown keys: forgives"):
        from_data({"forgives": []}, Policy)
    with pytest.raises(InputError, match=r"unknown keys: x"):
        from_data([{**DATA, "x": 1}], Trajectory)


@pytest.mark.parametrize(("data", "kind"), [(5, Step), (None, Policy), (7, Trajectory), ("x", Step)])
def test_a_value_that_is_no_object_is_an_input_error(data: object, kind: Any) -> None:
    with pytest.raises(InputError, match=kind.__name__):
        from_data(data, kind)


def test_a_wrong_choice_lists_the_right_ones() -> None:
    with pytest.raises(InputError, match=r"Policy\.odd_stop: 5 is not one of refuse, replace, keep"):
        from_data({"odd_stop": 5}, Policy)
    with pytest.raises(InputError, match="forgive takes"):
        from_data({"forgive": ["absent"]}, Policy)


CALL: dict[str, Any] = {
    "name": "a",
    "step": DATA,
    "order": 3,
    "finish_reason": "length",
    "weight_versions": [{"version": "v", "start": 0, "stop": 1}],
    "routed_experts": {"data": "AAEC/w==", "dtype": "uint8", "shape": [2, 1, 2], "start": 1},
    "reward": 0.5,
    "metadata": {"task": {"number": 7, "tags": [None, True]}},
}


def test_a_call_is_plain_data_and_comes_back() -> None:
    experts = RoutedExperts(data=bytes((0, 1, 2, 255)), dtype="uint8", shape=(2, 1, 2), start=1)
    call = StoredCall(
        name="a",
        step=from_data(DATA, Step),
        order=3,
        finish_reason="length",
        weight_versions=[WeightVersion(version="v", start=0, stop=1)],
        routed_experts=experts,
        reward=0.5,
        metadata={"task": {"number": 7, "tags": [None, True]}},
    )
    assert json.loads(json.dumps(to_data(call))) == CALL
    assert from_data(CALL, StoredCall) == call
    assert isinstance(from_data(CALL, StoredCall).weight_versions[0], WeightVersion)
    assert to_data(experts) == CALL["routed_experts"]
    assert from_data(CALL["routed_experts"], RoutedExperts) == experts


def test_a_call_needs_a_name_and_a_step_alone() -> None:
    call = from_data({"name": "a", "step": DATA}, StoredCall)
    assert call == StoredCall(name="a", step=from_data(DATA, Step))
    assert to_data(call)["routed_experts"] is None
    with pytest.raises(InputError) as caught:
        from_data({}, StoredCall)
    assert (
        str(caught.value)
        == "StoredCall.name: the key 'name' is missing; StoredCall.step: the key 'step' is missing"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": 5}, "name is 5: give a string"),
        ({"name": ""}, "name is ''"),
        ({"order": "3"}, "order is '3': give a whole number"),
        ({"order": True}, "order is True"),
        ({"reward": "0.5"}, "reward is '0.5': give a number or None"),
        ({"reward": True}, "reward is True"),
        ({"finish_reason": 1}, "finish_reason is 1"),
        ({"metadata": [1]}, r"metadata is a list: give a mapping"),
        ({"weight_versions": [{"version": 1, "start": 0, "stop": 1}]}, r"weight_versions\[0\]: version is 1"),
        (
            {"weight_versions": [{"version": "v", "start": "0", "stop": 1}]},
            "start of a weight version is '0'",
        ),
        ({"weight_versions": [{"version": "v", "start": 0, "stop": 9}]}, "covers 0 to 9 of 2"),
        ({"weight_versions": [{"version": "v", "start": 0, "end": 1}]}, "unknown keys: end"),
        ({"routed_experts": {"data": "A?==", "dtype": "uint8", "shape": [1]}}, "give bytes as a string of"),
        ({"routed_experts": {"data": "A?AA=", "dtype": "uint8", "shape": [2]}}, "give bytes as a string of"),
        (
            {"routed_experts": {"data": "AAA=\n", "dtype": "uint8", "shape": [2]}},
            ": give bytes as a string of base64$",
        ),
        ({"routed_experts": {"data": [0], "dtype": "uint8", "shape": [1]}}, "give bytes as a string of"),
        ({"routed_experts": {"data": "é", "dtype": "uint8", "shape": [1]}}, "give bytes as a string of"),
        ({"routed_experts": {"data": "AAA=", "dtype": "uint8", "shape": [9]}}, "uint8 of shape .9,. needs 9"),
        ({"routed_experts": {"data": "AAA=", "dtype": "uint8", "shape": [2], "start": "1"}}, "start at '1'"),
        ({"step": {**DATA, "logprobs": [-1]}}, "StoredCall.step: logprobs has length 1 for 2"),
        ({"more": 1}, r"StoredCall: unknown keys: more"),
    ],
)
def test_wrong_calls_are_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_data({**CALL, **wrong}, StoredCall)


def test_options_speak_in_names() -> None:
    options = SampleOptions(owner=Owner.LAST, max_length=7, missing_row=MissingRow.PAD)
    data = to_data(options)
    assert (data["owner"], data["max_length"], data["missing_row"], data["rows"]) == (
        "last",
        7,
        "pad",
        "leaf",
    )
    assert from_data(json.loads(json.dumps(data)), SampleOptions) == options
    assert from_data({}, SampleOptions) == SampleOptions()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"owner": "nobody"}, "SampleOptions.owner: 'nobody' is not one of first, last, longest"),
        ({"max_length": "7"}, "max_length is '7'"),
        ({"max_length": 0}, "max_length is 0"),
        ({"most": 7}, "unknown keys: most"),
    ],
)
def test_wrong_options_are_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_data(wrong, SampleOptions)


@pytest.mark.parametrize("wrong", [{"truncated": "false"}, {"truncated": 0}, {"truncated": None}, {"key": 5}])
def test_data_of_the_wrong_type_is_not_converted(wrong: dict[str, Any]) -> None:
    """The text "false" is no falsehood, and a number is no name."""
    (name,) = wrong
    with pytest.raises(InputError, match=rf"Step.{name}: .* is not of type |Step: {name} is "):
        from_data({**to_data(example.step()), **wrong}, Step)
