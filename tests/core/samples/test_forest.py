"""Forests by example: what each kind of call looks like, and what is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from tests.core import talk
from tests.core.talk import said, user
from tito_core import Forgiveness, Ids, InputError, Message, Step, Trajectory
from tito_core.samples import trie
from tito_core.samples.call import Ending, StoredCall
from tito_core.samples.experts import RoutedExperts
from tito_core.samples.forest import Forest
from tito_core.samples.node import EdgeKind
from tito_core.samples.restated import Quoted, Retold
from tito_core.samples.ties import NOBODY
from tito_core.samples.weights import WeightVersion

SUMMARY = "What was done so far:\n- looked at the sky"


def call(
    name: str,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    prompt: Sequence[Message] = (),
    words: str | None = None,
    **more: Any,
) -> StoredCall:
    """Return a call; what is about ids alone has no messages."""
    completion = [] if words is None else [said(words)]
    truncated = more.pop("truncated", False)
    step = Step(
        prompt=list(prompt),
        completion=completion,
        prompt_ids=prompt_ids,
        completion_ids=completion_ids,
        truncated=truncated,
    )
    return StoredCall(name=name, step=step, **more)


def kinds(*calls: StoredCall) -> dict[str, tuple[str | None, str, str | None]]:
    return {node.name: (node.parent, node.kind.name, node.of) for node in Forest.of(calls).nodes}


def test_no_calls_make_an_empty_forest() -> None:
    forest = Forest.of([])
    assert (len(forest), forest.nodes, forest.leaves, forest.roots, forest.trees) == (0, (), (), (), ())
    assert forest.add(call("a", [1], [2])) == Forest.of([call("a", [1], [2])])
    assert repr(Forest.of([call("a", [1], [2])])) == "Forest(1 calls, 1 roots, 1 leaves)"


def test_a_turn_continues_the_longest_whole_call() -> None:
    calls = call("a", [1], [2, 3]), call("b", [1, 2, 3, 4], [5]), call("c", [1, 2, 3, 4, 5, 6], [7])
    assert kinds(*calls) == {
        "a": (None, "UNRELATED", None),
        "b": ("a", "CONTINUES", "a"),
        "c": ("b", "CONTINUES", "b"),
    }


def test_part_of_a_call_is_no_parent() -> None:
    """One sampled id less, as where a stop was replaced, and the row would not be what was sampled."""
    assert kinds(call("a", [1], [2, 3]), call("b", [1, 2, 4], [5]))["b"] == (None, "UNRELATED", None)
    assert kinds(call("a", [1], [2, 3]), call("b", [1, 2], [5]))["b"] == (None, "UNRELATED", None)


def test_a_cut_turn_is_continued_over_the_close_that_was_inserted() -> None:
    cut = call("a", [1], [5], truncated=True, finish_reason="length")
    assert kinds(cut, call("b", [1, 5, 2, 1, 9], [6]))["b"] == ("a", "CONTINUES", "a")


def test_a_turn_may_be_continued_inside() -> None:
    assert kinds(call("a", [1], [5], truncated=True), call("b", [1, 5], [6]))["b"] == ("a", "CONTINUES", "a")


def test_going_back_branches() -> None:
    calls = call("a", [1], [2]), call("b", [1, 2, 3], [4]), call("c", [1, 2, 3, 4, 5], [6])
    forest = Forest.of([*calls, call("d", [1, 2, 9], [4])])
    assert forest.children["a"] == ("b", "d")
    assert forest.leaves == ("c", "d")
    assert forest.path("c") == ("a", "b", "c")


def test_the_same_prompt_ids_are_a_retry_of_the_first() -> None:
    calls = (
        call("b", [1, 2, 3], [5]),
        call("a", [1], [2]),
        call("c", [1, 2, 3], [6]),
        call("d", [1, 2, 3], []),
    )
    assert kinds(*calls) == {
        "a": (None, "UNRELATED", None),
        "b": ("a", "CONTINUES", "a"),
        "c": ("a", "RETRIES", "b"),
        "d": ("a", "RETRIES", "b"),
    }


def test_no_ids_are_no_evidence() -> None:
    """A call without prompt ids retries nothing, and one that sampled nothing is nobody's parent."""
    assert kinds(call("a", [], [5]), call("b", [], [6]))["b"] == (None, "UNRELATED", None)
    assert kinds(call("a", [1], []), call("b", [1, 2], [6]))["b"] == (None, "UNRELATED", None)
    assert kinds(call("a", [1], []), call("b", [1], []))["b"] == (None, "RETRIES", "a")
    assert kinds(call("a", [], [5]), call("b", [5, 6], [7]))["b"] == ("a", "CONTINUES", "a")


@pytest.mark.parametrize(
    ("orders", "parent"),
    [
        ((0, 1, 2), "y"),
        ((1, 0, 2), "x"),
        ((0, 2, 1), "x"),
        ((2, 1, 0), "y"),
        ((1, 2, 0), "x"),
        ((0, 0, 0), "c"),
    ],
)
def test_of_equal_calls_the_latest_before_the_child_is_continued(orders: Sequence[int], parent: str) -> None:
    """And it is recorded that there were others; where none is before it, the first after it is taken."""
    x, y, z = orders
    twins = call("x", [1], [2], order=x), call("y", [1], [2], order=y)
    node = Forest.of([*twins, call("z" if any(orders) else "c", [1, 2, 3], [4], order=z)])
    found = node["z" if any(orders) else "c"]
    assert found.parent == (parent if any(orders) else "x")
    assert sorted(found.rivals) == ["x", "y"]
    assert node["x"].rivals == ()


def test_a_history_that_was_rendered_again_is_a_rewrite() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "hello")
    second = call("b", [1, 5, 6, 7], [8, 9], [user("hi"), said("hello"), user("so?")], "well")
    prompt = [user("hi"), said("hello"), user("so?"), said("well"), user("and?")]
    third = call("c", [1, 5, 6, 7, 88, 3], [9], prompt, "thus")
    fourth = call("d", [1, 55, 3], [9], prompt[:3], "thus")
    found = kinds(first, second, third, fourth)
    assert found["c"] == ("a", "REWRITES", "b")
    assert found["d"] == (None, "REWRITES", "a")
    assert Forest.of([first, second, third]).trees == (("a", "b", "c"),)


def test_a_rewrite_says_what_was_forgiven() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "")
    prompt = [user("hi"), {"role": "assistant", "content": None}, user("so?")]
    node = Forest.of([first, call("b", [1, 55, 3], [9], prompt)])["b"]
    assert (node.kind, node.of) == (EdgeKind.REWRITES, "a")
    assert node.forgiven == frozenset((Forgiveness.EMPTY_CONTENT,))


def test_ids_are_the_truth_where_messages_say_otherwise() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "hello")
    second = call("b", [1, 5, 6, 7], [8], [user("ho"), user("so?")], "well")
    assert kinds(first, second)["b"] == ("a", "CONTINUES", "a")


def test_an_injected_turn_is_environment() -> None:
    first = call("a", [1, 5], [6], [user("hi")], "hello")
    prompt = [user("hi"), said("hello"), user("so?"), said("not sampled"), user("and?")]
    assert kinds(first, call("b", [1, 5, 6, 7], [8], prompt))["b"] == ("a", "CONTINUES", "a")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (user(SUMMARY), "COMPACTS"),
        (user(f"You did this:\n{SUMMARY}\nGo on."), "COMPACTS"),
        ({"role": "user", "content": [{"type": "text", "text": SUMMARY}]}, "COMPACTS"),
        (
            {"role": "user", "content": [{"type": "text", "text": "So:"}, {"type": "text", "text": SUMMARY}]},
            "COMPACTS",
        ),
        (user(f"You did this: {SUMMARY}"), "COMPACTS"),
        (user(SUMMARY[:-1]), "UNRELATED"),
        (user("What was done so far:"), "UNRELATED"),
        (said(SUMMARY), "UNRELATED"),
        (user("- looked at the sky"), "UNRELATED"),
    ],
)
def test_a_shorter_prompt_that_quotes_an_answer_compacts(message: dict[str, Any], kind: str) -> None:
    long = [user("hi"), said("hello"), user("sum up")]
    found = kinds(call("a", [1], [2], long, SUMMARY), call("b", [7], [8], [message]))
    assert found["b"][1] == kind
    assert found["b"][2] == ("a" if kind == "COMPACTS" else None)


def test_a_short_answer_is_no_evidence_of_compaction() -> None:
    long = [user("hi"), said("hello"), user("sum up")]
    assert kinds(call("a", [1], [2], long, "yes"), call("b", [7], [8], [user("yes")]))["b"][1] == "UNRELATED"


def test_a_prompt_is_no_compaction_of_a_later_call_or_of_a_shorter_one() -> None:
    long = call("b", [1], [2], [user("hi"), said("hello"), user("sum up")], SUMMARY)
    assert kinds(long, call("a", [7], [8], [user(SUMMARY)]))["a"][1] == "UNRELATED"
    short = call("a", [1], [2], [user("sum up")], SUMMARY)
    assert kinds(short, call("b", [7], [8], [user(SUMMARY), user("go on")]))["b"][1] == "UNRELATED"


def test_a_compaction_has_the_same_system_text() -> None:
    system = {"role": "system", "content": "be brief"}
    long = call("a", [1], [2], [system, user("hi"), said("hello"), user("sum up")], SUMMARY)
    assert kinds(long, call("b", [7], [8], [user(SUMMARY)]))["b"][1] == "UNRELATED"
    assert kinds(long, call("b", [7], [8], [system, user(SUMMARY)]))["b"] == (None, "COMPACTS", "a")


def test_a_prompt_that_keeps_the_last_turn_compacts() -> None:
    system = {"role": "system", "content": "be brief"}
    long = call("a", [1], [2], [system, user("hi"), said("hello"), user("so?")], "well")
    kept = [system, user("so?"), said("well"), user("and?")]
    assert kinds(long, call("b", [7], [8], kept))["b"] == (None, "COMPACTS", "a")
    parted = [system, user("so?"), user("well?"), said("well")]
    assert kinds(long, call("b", [7], [8], parted))["b"][1] == "UNRELATED"


def test_sub_agents_stay_apart_however_they_interleave() -> None:
    main = call("a1", [1, 5], [6], [user("hi")], "hello", order=1)
    sub = call("b1", [1, 7], [6], [user("help")], "hello", order=2)
    on = call("a2", [1, 5, 6, 3], [6], [user("hi"), said("hello"), user("so?")], "well", order=3)
    deeper = call("b2", [1, 7, 6, 3], [6], [user("help"), said("hello"), user("so?")], "well", order=4)
    forest = Forest.of([deeper, main, on, sub])
    assert forest.trees == (("a1", "a2"), ("b1", "b2"))
    assert [node.name for node in forest.nodes] == ["a1", "b1", "a2", "b2"]


# --- what is refused ------------------------------------------------------------------------------------

STEP = talk.step()
ROWS = RoutedExperts(data=bytes(4), dtype="uint8", shape=(4, 1))
BAD_CALLS: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name is ''"),
    ({"name": 7}, "name is 7"),
    ({"step": None}, "step is NoneType: give a Step"),
    ({"order": 1.5}, "order is 1.5"),
    ({"order": True}, "order is True"),
    ({"finish_reason": 3}, "finish_reason is 3"),
    ({"finish_reason": "length"}, "finished by length: make its step with truncated=True"),
    ({"finish_reason": "abort"}, "finished by abort"),
    ({"reward": "good"}, "reward is 'good'"),
    ({"reward": True}, "reward is True"),
    ({"reward": float("nan")}, "reward is nan"),
    ({"metadata": [1]}, r"metadata is \[1\]"),
    ({"weight_versions": "v1"}, "weight_versions is 'v1'"),
    ({"weight_versions": ["v1"]}, "weight_versions holds 'v1'"),
    ({"weight_versions": [WeightVersion(version="a", start=0, stop=4)]}, "covers 0 to 4 of 3"),
    (
        {"weight_versions": [WeightVersion(version=v, start=s, stop=2) for v, s in (("a", 0), ("b", 1))]},
        r"weight_versions\[1\] covers 1 to 2 of 3 completion_ids, after 2",
    ),
    ({"weight_versions": [WeightVersion(version="a", start=2, stop=1)]}, "covers 2 to 1"),
    ({"routed_experts": b"1"}, "routed_experts is b'1'"),
    ({"routed_experts": attrs.evolve(ROWS, start=99)}, "cover positions 99 to 103 of"),
]


@pytest.mark.parametrize(("change", "said"), BAD_CALLS, ids=str)
def test_a_bad_call_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"name": "a", "step": STEP} | change
    with pytest.raises(InputError, match=said):
        StoredCall(**given)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": [1]}, "data is list"),
        ({"dtype": "float"}, "dtype is 'float': give one of uint8"),
        ({"shape": (3, 1)}, r"4 bytes, uint8 of shape \(3, 1\) needs 3"),
        ({"shape": (4, 0)}, "shape is"),
        ({"shape": ()}, "shape is"),
        ({"shape": [4]}, "shape is"),
        ({"shape": (4.0,)}, "shape is"),
        ({"start": -1}, "start at -1"),
        ({"start": None}, "start at None"),
    ],
    ids=str,
)
def test_bad_routed_experts_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        attrs.evolve(ROWS, **change)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"version": 1}, "version is 1"), ({"start": -1}, "at -1"), ({"stop": "2"}, "at '2'")],
    ids=str,
)
def test_bad_weight_versions_are_refused(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"version": "a", "start": 0, "stop": 1} | change
    with pytest.raises(InputError, match=said):
        WeightVersion(**given)


def test_a_forest_refuses_what_is_no_call_and_two_of_a_name() -> None:
    calls: list[Any] = [STEP]
    with pytest.raises(InputError, match="a forest holds calls, not Step"):
        Forest.of(calls)
    with pytest.raises(InputError, match="two calls have the name 'a'"):
        Forest.of([call("b", [1], [2]), call("a", [1], [2]), call("a", [1], [3])])
    with pytest.raises(InputError, match="'c' is none of 1 calls"):
        Forest.of([call("a", [1], [2])])["c"]


@pytest.mark.parametrize(
    ("change", "ending"),
    [
        ({}, Ending.WHOLE),
        ({"truncated": True}, Ending.TRUNCATED),
        ({"truncated": True, "finish_reason": "length"}, Ending.TRUNCATED),
        ({"truncated": True, "finish_reason": "abort"}, Ending.ABORTED),
        ({"completion_ids": [], "truncated": True, "finish_reason": "abort"}, Ending.EMPTY),
        ({"completion_ids": []}, Ending.EMPTY),
    ],
    ids=str,
)
def test_a_turn_ends_in_one_of_four_ways(change: dict[str, Any], ending: Ending) -> None:
    given: dict[str, Any] = {"name": "a", "prompt_ids": [1], "completion_ids": [2]} | change
    assert call(**given).ending is ending


def test_what_a_caller_edits_later_does_not_reach_a_call() -> None:
    metadata, versions = {"a": 1}, [WeightVersion(version="a", start=0, stop=1)]
    made = StoredCall(name="a", step=STEP, metadata=metadata, weight_versions=versions)
    metadata["a"] = 2
    versions.clear()
    assert (made.metadata, len(made.weight_versions)) == ({"a": 1}, 1)
    values: list[Any] = [made, Forest.of([made]), Forest.of([made]).nodes[0], ROWS]
    for value in values:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.name = "b"


def test_a_forest_survives_a_trip_to_another_process() -> None:
    forest = Forest.of([call("a", [1], [2]), call("b", [1, 2, 3], [4])])
    for again in (pickle.loads(pickle.dumps(forest)), copy.deepcopy(forest)):  # noqa: S301  # our own bytes
        assert again == forest
        assert again.path("b") == ("a", "b")


# --- cost -----------------------------------------------------------------------------------------------


def rollout(turns: int, size: int = 1) -> list[StoredCall]:
    """Return a conversation whose steps share their history, each of `size` sampled words and a stop."""
    trajectory, prompt, ids = Trajectory(), STEP.prompt, Ids.of(list(STEP.prompt_ids))
    for turn in range(turns):
        step = Step(
            prompt=prompt,
            completion=[said(f"{turn}")],
            prompt_ids=ids,
            completion_ids=[1_000 + turn] * size + [2],
        )
        trajectory = trajectory.append(step)
        last = trajectory[-1]
        prompt, ids = last.messages.then([user(f"{turn}")]), last.ids.then((turn, 7)).packed()
    return [StoredCall(name=f"{i}", order=i, step=step) for i, step in enumerate(trajectory)]


def counting(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[int]:
    """Count the calls of a function."""
    counts, real = [0], getattr(place, name)

    def counted(*args: Any) -> Any:
        counts[0] += 1
        return real(*args)

    monkeypatch.setattr(place, name, counted)
    return counts


@pytest.mark.parametrize("turned", [lambda calls: calls, lambda calls: calls[::-1]], ids=["forth", "back"])
def test_shared_histories_cost_what_is_new(
    turned: Callable[[list[StoredCall]], list[StoredCall]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the turns are twice the work: no history is compared or hashed again."""
    work = []
    for turns in (100, 200):
        calls = turned(rollout(turns))
        counts = counting(monkeypatch, trie, "common")
        forest = Forest.of(calls)
        monkeypatch.undo()
        assert len(forest.path(f"{turns - 1}")) == turns
        work.append(counts[0])
    assert work[1] <= 2 * work[0] + 10
    assert work[1] <= 4 * 200


def test_unrelated_calls_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [call(f"{i}", [i, 1, 2], [3], [user(f"{i}")], "hello") for i in range(300)]
    counts = counting(monkeypatch, trie, "common")
    assert len(Forest.of(calls).roots) == 300
    assert counts[0] <= 4 * 300


def test_messages_are_looked_at_only_where_ids_leave_something_open(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = rollout(20)
    counts = [counting(monkeypatch, kind, "__init__") for kind in (Retold, Quoted)]
    Forest.of(calls)
    assert counts == [[0], [0]]
    Forest.of([*calls, call("again", [9], [9], list(calls[5].step.messages))])
    assert counts == [[1], [0]]


def test_thousands_of_equal_calls_are_no_trouble() -> None:
    twins = [call(f"{i:04}", [1], [2], order=i) for i in range(2_000)]
    children = [call(f"c{i:04}", [1, 2, i], [3], order=i) for i in range(2_000)]
    forest = Forest.of([*twins, *children])
    assert forest["c1000"].parent == "1000"
    assert forest["c1000"].rivals is forest["c0001"].rivals
    assert len(forest["c1000"].rivals) == 2_000


def test_nobody_is_nobody() -> None:
    assert NOBODY.chosen(call("a", [1], [2])) is None
    assert NOBODY.names == ()
