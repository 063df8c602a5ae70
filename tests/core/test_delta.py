"""A stored trajectory has each message and id once, whatever its length, and reads back without comparing."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.trajectories import sharing
from tito_core import InputError, Origin, Step, Trajectory
from tito_core.data import from_data, to_data
from tito_core.delta import deltas
from tito_core.testing.strategies.trajectory import built

WIDTH = 100
"""Ids of a turn."""


def rollout(turns: int) -> Trajectory:
    """Return a trajectory of turns as a rollout makes them."""
    trajectory = Trajectory([example.step([example.user("x" * WIDTH)])])
    for turn in range(1, turns):
        last = trajectory[-1]
        ids = last.ids.then(tuple(range(turn, turn + WIDTH)))
        trajectory = trajectory.append(
            Step(
                prompt=last.messages.then([example.user(f"question {turn}")]),
                completion=[example.assistant(f"answer {turn}")],
                prompt_ids=ids,
                completion_ids=list(range(WIDTH)),
                prompt_ledger=last.ledger.then((Origin.ENVIRONMENT, WIDTH)),
            )
        )
    return trajectory


def own_bytes(trajectory: Trajectory) -> int:
    """Return what the ids take at four bytes, and the messages as JSON text."""
    last = trajectory[-1]
    return 4 * last.ids.length + len(json.dumps(list(last.messages)))


@pytest.mark.whole
def test_a_long_rollout_is_stored_in_less_than_three_times_its_own_bytes() -> None:
    trajectory = rollout(3_000)
    stored = pickle.dumps(trajectory)
    written = json.dumps(to_data(trajectory))
    assert len(stored) < 3 * own_bytes(trajectory)
    assert len(written) < 3 * own_bytes(trajectory)
    for again in (pickle.loads(stored), from_data(json.loads(written), Trajectory)):  # noqa: S301  # our own bytes
        assert len(again) == 3_000
        assert again[-1] == trajectory[-1]
        assert again[-1].ids.extends(again[0].ids)
        assert again[-1].messages.extends(again[1_000].messages)
        assert len(list(again[-1].ids.links())) == len(list(trajectory[-1].ids.links()))


def test_branches_of_a_step_that_is_absent_share_it_once() -> None:
    """No step owns the whole of what they share, so that it is cut where the second one leaves it."""
    trajectory = built([("root", 0, "b"), ("absent base", 0, "b"), ("turn", 2, "b")])
    data = to_data(trajectory)
    assert [step["shared_prompt"] for step in data["steps"]] == [None, [0, 2], [1, 4], [2, 6]]
    again = from_data(data, Trajectory)
    assert again == trajectory
    assert sharing(again) == sharing(trajectory)


def test_what_a_step_adds_comes_back_from_a_pickle() -> None:
    for one in deltas(rollout(3)):
        valued = attrs.evolve(one, logprobs=(-0.5, None))
        assert pickle.loads(pickle.dumps(valued)) == valued  # noqa: S301  # our own bytes


def test_a_step_that_stands_twice_comes_back_twice() -> None:
    trajectory = Trajectory([example.step()])
    twice = trajectory.append(trajectory[0])
    assert pickle.loads(pickle.dumps(twice)) == from_data(to_data(twice), Trajectory) == twice  # noqa: S301  # our own bytes


def test_a_subclass_comes_back_as_itself() -> None:
    assert type(pickle.loads(pickle.dumps(Named([example.step()])))) is Named  # noqa: S301  # our own bytes


class Named(Trajectory):
    """A host's own trajectory."""


def test_steps_that_share_nothing_are_not_compared_when_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trajectory = Trajectory(example.step(words=words) for words in "abc")
    stored, data = pickle.dumps(trajectory), to_data(trajectory)
    monkeypatch.setattr("tito_core.trajectory._base", lambda *_: pytest.fail("compared"))
    assert pickle.loads(stored) == trajectory  # noqa: S301  # our own bytes
    assert from_data(data, Trajectory) == trajectory


OLD = (
    "eNqdU02L1EAQdZM4Mzvuh4pfKwiNgsyCrBc/0Ysg6BJnFPWqSzKpnYqbSQ/dHcY5CAruwELfpv09ngU9iODZn2IlnU1m2MtqLqlU"
    "6r16Va/7o/dl5p0oHt0KszhRcSqNbg5ABUoJMzP6nIoV3+lzAVtKBO+gr7iYGN1+XX9QVXtX8OFOrGAozdS8NG9MR6/VSKlgZLT3"
    "Kn/NzOYn84H+N0aEGSmDjj5Tlw5BymAARre6NpKEwIYlzWGe4An99jIJgqT2eaogVUY7GJss2Kc63e4TcQIq5imx49k5OF7Uy4GU"
    "sVQBgXBDn0RIEl4hraadOJK5rtVaV57R7nY0L6fjL/mn/O/+D9+haAUKirW6eUmDmxWg+9nt7ru+Y0tbCR9Qw1Canl5WIkv7gYLI"
    "HGh3DyaUWy3VJBANaFgSdLoWVCZ145kNyAWH75bbx/u68VzEgzjN8xcEpBEIiFhuExseLjYX4Tenxs7eqvLzO+sUS8NLuIGXMxtf"
    "pfhaZkdwj4y4uJOFgbMQV6z5uH6sHlVee0Oa2dimeOWIqXm9XgpLG/H6MRQV2Z/+L/+3/23OP7y5iG2W2vH2k69/7FXpTQ3eOcC7"
    "PbxHtQ/wYVmLj/Nl4iN9Xgb5EYhYOGEKgUFKRoBdt1tUbCvOEyZAZomSN1h+litbWJBGjBNOMJWJVBJFoAqeIY8gYVEcsZQrZptU"
    "JhLrrfFhJV3EUUKHiY0FXUrJxsQGcxxyBMGeZCm8V5bAmRo75tN/MwbfzuWh9OfFf62/WnUWFq+tv/zptu0="
)
"""A pickle of two steps from before trajectories were stored by what is new: each step is whole."""


def test_an_old_pickle_is_read() -> None:
    again = pickle.loads(zlib.decompress(base64.b64decode(OLD)))  # noqa: S301  # our own bytes
    assert isinstance(again, Trajectory)
    assert [step.ids.length for step in again] == [10, 21]
    assert again[1].ids.extends(again[0].ids)
    assert again[1].ledger.mask() == [0] * 7 + [1] * 3 + [0] * 9 + [1] * 2
    assert again[1].logprobs == (-0.5, None)


def data_of_two() -> dict[str, Any]:
    data: dict[str, Any] = to_data(built([("root", 0, "b"), ("turn", 0, "b")]))
    return data


def test_other_digits_of_log_probabilities_are_read() -> None:
    data = data_of_two()
    count = len(from_data(data, Trajectory)[0].completion_ids)
    data["steps"][0]["logprobs"] = [-0.25] * count
    assert from_data(data, Trajectory)[0].logprobs == (-0.25,) * count


def test_a_stored_trajectory_has_the_same_checks_in_all_versions() -> None:
    assert data_of_two()["checks"] == [2608501463, 1104003111]


@pytest.mark.parametrize(
    ("step", "wrong", "words"),
    [
        (1, {"shared_prompt": [2, 1]}, r"^Trajectory.steps\[1\]: shared_prompt is \[2, 1\]: "),
        (1, {"shared_ids": [1, 10]}, r"^Trajectory.steps\[1\]: shared_ids is \[1, 10\]: "),
        (1, {"shared_ids": [-1, 10]}, r"^Trajectory.steps\[1\]: shared_ids is \[-1, 10\]: "),
        (1, {"shared_ids": [0, 15]}, r"^Trajectory.steps\[1\]: shared_ids is \[0, 15\]: "),
        (1, {"shared_ledger": [0, 99]}, r"^Trajectory.steps\[1\]: shared_ledger is \[0, 99\]: "),
        (1, {"shared_media": [0, 9]}, r"^Trajectory.steps\[1\]: shared_media is \[0, 9\]: "),
        (1, {"shared_ids": [0, 18]}, r"^Trajectory.steps\[1\]: shared_ids is \[0, 18\]: "),
        (
            1,
            {"shared_ids": [0, 6]},
            r"^Trajectory.steps\[1\]: prompt_ledger covers 36 ids, prompt_ids has 25",
        ),
        (1, {"shared_ledger": [0, 3]}, r"^Trajectory.steps\[1\]: prompt_ledger covers 25 ids"),
        (1, {"shared_prompt": [0, 1]}, r"^Trajectory.steps\[1\]: the data are not those that to_data wrote"),
        (0, {"shared_ids": [0, 3]}, r"^Trajectory.steps\[0\]: shared_ids is \[0, 3\]: "),
        (1, {"shared_ids": None}, r"^Trajectory.steps\[1\]: prompt_ledger covers 36 ids, prompt_ids has 19"),
        (1, {"shared_ledger": None}, r"^Trajectory.steps\[1\]: prompt_ledger covers"),
        (1, {"shared_prompt": None}, r"^Trajectory.steps\[1\]: the data are not those that to_data wrote"),
        (1, {"shared_ids": [0]}, r"^Trajectory.steps\[1\].shared_ids"),
        (1, {"shared_ids": [0, 1, 2]}, r"^Trajectory.steps\[1\].shared_ids"),
        (1, {"shared_ids": ["0", 10]}, r"^Trajectory.steps\[1\].shared_ids\[0\]: '0' is not of type int"),
        (1, {"shared_ids": [False, 10]}, r"^Trajectory.steps\[1\].shared_ids\[0\]: False is not of type int"),
        (1, {"prompt_ids": [-1]}, r"^Trajectory.steps\[1\].prompt_ids: ids\[0\] is -1"),
        (1, {"prompt": [{}]}, r"^Trajectory.steps\[1\].prompt: prompt\[0\] has no role"),
        (1, {"logprobs": [-1]}, r"^Trajectory.steps\[1\]: logprobs has length 1 for 2 completion_ids"),
        (1, {"logprobs": "ab"}, r"^Trajectory.steps\[1\]: logprobs must be a list of numbers"),
        (1, {"more": 1}, r"^Trajectory.steps\[1\]: unknown keys: more"),
        (
            0,
            {"completion_ids": [5, 6, 7]},
            r"^Trajectory.steps\[0\]: the data are not those that to_data wrote",
        ),
        (0, {"truncated": True}, r"^Trajectory.steps\[0\]: the data are not those that to_data wrote"),
    ],
)
def test_wrong_data_of_a_step_are_named(step: int, wrong: dict[str, Any], words: str) -> None:
    data = data_of_two()
    data["steps"][step] |= wrong
    with pytest.raises(InputError, match=words):
        from_data(data, Trajectory)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"steps": 5}, r"^Trajectory.steps: "),
        ({"steps": [5]}, r"^Trajectory.steps\[0\]: "),
        ({"steps": []}, r"^Trajectory.checks has 2 values for 0 steps"),
        ({"checks": [1, 2]}, r"^Trajectory.steps\[0\]: the data are not those that to_data wrote"),
        ({"checks": ["1", 2]}, r"^Trajectory.checks\[0\]: '1' is not of type int"),
        ({"more": 5}, r"^Trajectory: unknown keys: more"),
    ],
)
def test_wrong_data_of_a_trajectory_are_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_data(data_of_two() | wrong, Trajectory)
    with pytest.raises(InputError, match=r"^Trajectory\.checks: the key 'checks' is missing$"):
        from_data({"steps": []}, Trajectory)


def test_a_number_that_cannot_be_written_is_an_input_error() -> None:
    prompt = [{"role": "user", "content": 10**6000}]
    trajectory = Trajectory([Step(prompt=prompt, completion=[], prompt_ids=[1], completion_ids=[2])])
    with pytest.raises(InputError, match=r"^steps\[0\] has a number of thousands of digits"):
        to_data(trajectory)
