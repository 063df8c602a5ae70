"""Values become plain data and come back, and wrong data are named by their place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.core import talk
from tito_core import (
    InputError,
    OddStop,
    Policy,
    Step,
    Trajectory,
    Truncated,
    answer,
    edge,
    from_data,
    stitching,
    to_data,
)
from tito_core.normal import Forgiveness
from tito_core.stitch import Stitched


@pytest.fixture(autouse=True)
def _fresh_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build the converter in the test, where a mutant of its making can be seen."""
    monkeypatch.setattr(edge, "_CONVERTER", edge._made())


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


def test_a_trajectory_is_a_list_of_steps() -> None:
    first = talk.step()
    found = answer(stitching([first], talk.prompt(first), (talk.CLOSE,)), talk.tokenize)
    assert isinstance(found, Stitched)
    trajectory = Trajectory([first, found.then(completion=[talk.said("b")], completion_ids=[7, 2])])
    data = json.loads(json.dumps(to_data(trajectory)))
    assert len(data) == 2
    assert data[1]["prompt_ids"] == found.ids.tolist()
    assert [name for name, _ in data[1]["prompt_ledger"]] == [
        "prompt",
        "sampled",
        "environment",
        "generation_prompt",
    ]
    again = from_data(data, Trajectory)
    assert again == trajectory
    assert isinstance(again, Trajectory)
    assert again[1].ids.extends(again[0].ids)


def test_a_policy_speaks_in_names() -> None:
    policy = Policy(
        truncated=Truncated.REFUSE,
        odd_stop=OddStop.KEEP,
        forgive=[Forgiveness.RENAMED_TOOL_IDS, Forgiveness.DROPPED_REASONING],
    )
    data = {
        "truncated": "refuse",
        "odd_stop": "keep",
        "forgive": ["dropped_reasoning", "renamed_tool_ids"],
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
        ({"logprobs": [0.0]}, "logprobs has 1 values for 2"),
        ({"prompt_ledger": [["prompt", 5]]}, "prompt_ledger covers 5 ids, prompt_ids has 2"),
        ({"prompt_ledger": [["nobody", 2]]}, "Step.prompt_ledger: 'nobody' is none of prompt, sampled"),
        ({"prompt_ledger": [["prompt", -2]]}, "Step.prompt_ledger: prompt_ledger counts must be whole"),
        ({"prompt_ledger": [["prompt", True]]}, "Step.prompt_ledger: prompt_ledger counts must be whole"),
        ({"logprobs": ["0.5", None]}, r"logprobs\[0\] is '0.5': give a number or None"),
        ({"prompt_ledger": [["a @ b", 2]]}, "^Step.prompt_ledger: 'a @ b' is none of prompt, sampled"),
        ({"more": 1, "and": 2}, r"Step: the keys \['and', 'more'\] are unknown"),
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


def test_an_origin_that_wrote_nothing_may_be_in_a_ledger() -> None:
    step = from_data({**DATA, "prompt_ledger": [["sampled", 0], ["prompt", 2]]}, Step)
    assert to_data(step)["prompt_ledger"] == [["prompt", 2]]


def test_unknown_keys_are_named_wherever_they_are() -> None:
    with pytest.raises(InputError, match=r"Policy: the keys \['forgives'\] are unknown"):
        from_data({"forgives": []}, Policy)
    with pytest.raises(InputError, match=r"\['x'\] are unknown"):
        from_data([{**DATA, "x": 1}], Trajectory)


@pytest.mark.parametrize(("data", "kind"), [(5, Step), (None, Policy), (7, Trajectory), ("x", Step)])
def test_what_is_no_object_at_all_is_an_input_error(data: object, kind: Any) -> None:
    with pytest.raises(InputError, match=kind.__name__):
        from_data(data, kind)


def test_a_wrong_choice_lists_the_right_ones() -> None:
    with pytest.raises(InputError, match=r"Policy\.odd_stop: 5 is none of refuse, replace, keep"):
        from_data({"odd_stop": 5}, Policy)
    with pytest.raises(InputError, match="forgive takes"):
        from_data({"forgive": ["absent"]}, Policy)
