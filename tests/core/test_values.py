"""The values: shared sequences, ids, ledgers, trajectories, drift, keys."""

from __future__ import annotations

import copy
import pickle
from array import array
from types import SimpleNamespace
from typing import Any

import attrs
import pydantic
import pytest

from tests.core import example
from tito_core import Ids, InputError, Ledger, Messages, Origin, Span, Step, Trajectory, render_key
from tito_core.message import copied
from tito_core.shared import Shared


def chain() -> Shared[int]:
    return Shared((5, 6), Shared((), Shared((3, 4), Shared((1, 2)))))


@pytest.mark.parametrize("index", range(-6, 6))
def test_a_shared_sequence_reads_as_a_list(index: int) -> None:
    assert chain()[index] == [1, 2, 3, 4, 5, 6][index]


@pytest.mark.parametrize("index", [6, -7, 99])
def test_a_shared_sequence_ends(index: int) -> None:
    with pytest.raises(IndexError, match=f"index {index} is outside a sequence of 6"):
        chain()[index]


@pytest.mark.parametrize("start", [None, 0, 1, 2, 3, 5, 6, 9, -1, -3, -9])
@pytest.mark.parametrize("stop", [None, 0, 1, 2, 4, 6, 9, -1, -2, -9])
@pytest.mark.parametrize("step", [None, 1, 2, -1, -2])
def test_a_shared_sequence_slices_as_a_list(start: int | None, stop: int | None, step: int | None) -> None:
    assert chain()[start:stop:step] == [1, 2, 3, 4, 5, 6][start:stop:step]


def test_a_shared_sequence_names_the_sequence_that_it_extends() -> None:
    root = Shared((1, 2))
    empty = Shared((), root)
    longer = Shared((3,), empty)
    assert longer.extends(root)
    assert longer.extends(longer)
    assert longer.extends(empty)
    assert not root.extends(longer)
    assert longer.extends(Shared((1, 2))) is False
    assert longer.extends(Shared((1, 2, 3, 4))) is False
    assert longer.parts() == [(1, 2), (), (3,)]
    assert [len(link) for link in longer.links()] == [3, 2, 2]
    assert root.older is None


def test_a_shared_sequence_is_equal_by_value() -> None:
    assert chain() == [1, 2, 3, 4, 5, 6]
    assert chain() == (1, 2, 3, 4, 5, 6)
    assert chain() == Shared((1, 2, 3, 4, 5, 6))
    assert chain() != [1, 2, 3, 4, 5]
    assert chain() != [1, 2, 3, 4, 5, 7]
    assert chain() != 5
    assert Shared(("a",)) != "a"
    assert list(chain()) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(TypeError):
        hash(chain())


def test_a_shared_sequence_is_shown_in_short() -> None:
    assert repr(Shared((1, 2))) == "Shared([1, 2])"
    assert repr(Shared(tuple(range(8)))) == "Shared([0, 1, 2, 3, 4, 5, 6, 7])"
    assert repr(Ids.of(list(range(12)))) == "Ids([0, 1, 2, 3, 4, 5, 6, 7, ... 4 more])"


def test_nothing_in_a_value_can_be_set() -> None:
    values: list[Any] = [chain(), Ids.of([1]), Ledger.prompt(2), example.step(), Trajectory()]
    for value in values:
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.length = 5


def test_long_chains_neither_recurse_nor_grow_when_copied() -> None:
    ids = Ids.of([1])
    for number in range(5_000):
        ids = ids.then((number,))
    for again in (pickle.loads(pickle.dumps(ids)), copy.deepcopy(ids)):  # noqa: S301  # our own bytes
        assert again == ids
        assert type(again) is Ids
    ledger = Ledger.prompt(1)
    for number in range(5_000):
        ledger = ledger.then((Origin.SAMPLED, number + 1))
    for stored in (pickle.loads(pickle.dumps(ledger)), copy.deepcopy(ledger)):  # noqa: S301  # likewise
        assert stored == ledger
        assert len(stored) == len(ledger)
    step = pickle.loads(pickle.dumps(example.step()))  # noqa: S301  # our own bytes
    assert step == example.step()
    trajectory = Trajectory([example.step(), example.step(words="b")])
    again = pickle.loads(pickle.dumps(trajectory))  # noqa: S301  # our own bytes
    assert again == trajectory
    assert again.longest == trajectory.longest == 2


def test_ids_are_taken_once_and_packed_once() -> None:
    ids = Ids.of([7, 8])
    assert Ids.of(ids) is ids
    assert ids.then(()) is ids
    packed = ids.then((9,)).packed()
    assert packed == [7, 8, 9]
    assert all(isinstance(part, array) and part.itemsize == 4 for part in packed.parts())
    assert packed.packed() is packed
    longer = packed.then((10,)).packed()
    assert longer.extends(packed)
    assert longer.tolist() == [7, 8, 9, 10]
    assert all(type(item) is int for item in longer.tolist())


def test_ids_begin_with_their_prefix_by_identity_or_value() -> None:
    ids = Ids.of([1, 2, 3])
    assert ids.then((4,)).starts_with(ids)
    assert Ids.of([1, 2, 3, 4]).starts_with(ids)
    assert ids.starts_with(Ids.of([1, 2, 3]))
    assert not Ids.of([1, 2, 4, 4]).starts_with(ids)
    assert not Ids.of([1, 2]).starts_with(ids)


def test_only_what_is_not_packed_yet_is_packed() -> None:
    base = Ids.of([1, 2]).packed()
    grown = base.then((3,)).then((4,)).packed()
    assert grown.parts() == [array("I", [1, 2]), array("I", [3]), array("I", [4])]
    assert grown.older is not None
    assert grown.older.older is base
    assert Ids.of([]).packed() == []
    assert Ids.from_items(iter([1, 2])).parts() == [array("I", [1, 2])]


@pytest.mark.parametrize(
    ("wrong", "place"),
    [([0, 1, -1, -2], "2"), ([True], "0"), ([0, False], "1"), ([1, None], "1"), ([2**32], "0")],
)
def test_the_first_invalid_id_is_named(wrong: Any, place: str) -> None:
    words = rf"^taken\[{place}\] is {wrong[int(place)]!r}: an id is a whole number from 0 to 4294967295$"
    with pytest.raises(InputError, match=words):
        Ids.of(wrong, "taken")


@pytest.mark.parametrize("wrong", ["12", b"12", bytearray(b"12"), 5, None])
def test_a_value_that_is_no_sequence_of_ids_is_named_by_its_type(wrong: Any) -> None:
    with pytest.raises(InputError, match=rf"^ids must be a sequence of ids, not {type(wrong).__name__}$"):
        Ids.of(wrong)


def test_whole_numbers_of_any_library_are_ids() -> None:
    class Index:
        def __index__(self) -> int:
            return 5

    assert Ids.of([Index()]).tolist() == [5]  # type: ignore[list-item]  # what numpy's integers are
    assert type(Ids.of([Index()])[0]) is int  # type: ignore[list-item]  # likewise
    assert Ids.of(array("I", [1, 2])) == [1, 2]
    assert Ids.of([0, 2**32 - 1]) == [0, 2**32 - 1]


def test_a_ledger_counts_runs() -> None:
    ledger = Ledger.prompt(2).then(
        (Origin.SAMPLED, 2), (Origin.ENVIRONMENT, 0), (Origin.GENERATION_PROMPT, 1)
    )
    assert ledger.spans == (
        Span(Origin.PROMPT, 0, 2),
        Span(Origin.SAMPLED, 2, 4),
        Span(Origin.GENERATION_PROMPT, 4, 5),
    )
    assert len(ledger) == 5
    assert list(ledger)[1:3] == [Origin.PROMPT, Origin.SAMPLED]
    assert ledger.mask() == [0, 0, 1, 1, 0]
    assert repr(ledger) == "Ledger(PROMPT[0:2], SAMPLED[2:4], GENERATION_PROMPT[4:5])"
    assert ledger != Ledger.prompt(5)
    assert Ledger.of([(Origin.SAMPLED, 0), (Origin.PROMPT, 2)]).runs == [(Origin.PROMPT, 2)]
    assert Ledger.prompt(0).runs == []
    assert ledger != [0]
    with pytest.raises(TypeError):
        hash(ledger)


def test_the_end_of_a_ledger_is_read_from_any_place() -> None:
    first = Ledger.prompt(2).then((Origin.SAMPLED, 2), (Origin.ENVIRONMENT, 1))
    ledger = first.then((Origin.SAMPLED, 1), (Origin.SAMPLED, 2))
    assert ledger.runs == [*first.runs, (Origin.SAMPLED, 1), (Origin.SAMPLED, 2)]
    assert ledger.own == [(Origin.SAMPLED, 1), (Origin.SAMPLED, 2)]
    for start in range(len(ledger) + 2):
        found = ledger.since(start)
        assert all(count > 0 for _, count in found)
        assert [origin for origin, count in found for _ in range(count)] == list(ledger)[start:]
    assert ledger.since(5) == ledger.own
    assert ledger.extends(first)
    assert not first.extends(ledger)
    assert ledger.then() is ledger
    assert ledger.then((Origin.PROMPT, 0)) is ledger


def test_ids_in_one_piece_are_four_bytes_each() -> None:
    ids = Ids.of([1, 2]).then((3,)).then(array("I", [2**32 - 1]))
    assert list(memoryview(ids.tobytes()).cast("I")) == ids.tolist()
    assert Ids.of([]).tobytes() == b""


def test_a_step_of_shared_parts_has_all_of_its_ids() -> None:
    """A completion may be a chain itself, of ids or of messages."""
    sampled, assistant = (
        Ids.of([900]).then((example.CLOSE,)),
        Messages.of([example.assistant()]).then([example.assistant("b")]),
    )
    step = example.step()
    made = Step(prompt=step.prompt, completion=assistant, prompt_ids=step.prompt_ids, completion_ids=sampled)
    assert made.ids == [*step.prompt_ids, 900, example.CLOSE]
    assert made.messages == [*step.prompt, example.assistant(), example.assistant("b")]


def test_a_trajectory_is_a_sequence_of_steps() -> None:
    first, second = example.step(), example.step(words="other")
    trajectory = Trajectory([first]).append(second)
    assert list(trajectory) == [first, second]
    assert trajectory == [first, second]
    assert trajectory != [first]
    assert trajectory != [second, first]
    assert trajectory != 5
    assert trajectory[0] == first
    assert trajectory[:1] == [first]
    assert trajectory.older == [first]
    assert Trajectory().older is None
    assert trajectory.longest == 2
    assert Trajectory().longest == 0
    assert repr(trajectory) == "Trajectory(2 steps, longest 2 messages)"
    with pytest.raises(TypeError):
        hash(trajectory)
    with pytest.raises(InputError, match=r"step is \{\}: give a Step"):
        trajectory.append({})  # type: ignore[arg-type]  # what a newcomer tries


def test_a_step_whose_sampled_ids_are_packed_shares_its_prompt_too() -> None:
    first = example.step()
    again = example.step(
        example.prompt(first), prompt_ids=[*first.ids, 7], sampled=Ids.of([900, example.CLOSE]).packed()
    )
    stored = Trajectory([first, again])[1]
    assert stored == again
    assert stored.prompt_ids.extends(Trajectory([first])[0].ids) or stored.prompt_ids.parent is not None
    assert all(isinstance(part, array) for part in stored.ids.parts())


def test_a_step_that_already_shares_is_kept_as_it_is() -> None:
    plain = Trajectory([example.step()])[0]
    assert Trajectory([plain])[0] is plain


def test_a_step_is_shown_in_short() -> None:
    assert repr(example.step()) == "Step(1 + 1 messages, 7 + 3 ids)"
    assert repr(example.step(truncated=True)) == "Step(1 + 1 messages, 7 + 3 ids, truncated)"
    assert example.step().stop == example.CLOSE
    assert example.step(truncated=True).stop is None
    assert example.step(sampled=[]).stop is None
    assert example.step(logprobs=[-1.0, None, 0]).logprobs == (-1.0, None, 0)


def test_tools_and_arguments_that_are_not_json_are_named() -> None:
    with pytest.raises(InputError, match=r"^tools"):
        render_key([{"f": object()}])


def test_a_key_tells_renderings_apart() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert render_key(tools) == render_key([dict(tools[0])])
    assert render_key(tools) != render_key()
    assert render_key(template_args={"a": 1, "b": 2}) == render_key(template_args={"b": 2, "a": 1})
    assert render_key(template_args={"a": 1}) != render_key(template_args={"a": True})
    assert render_key([{"a": 1, "b": 2}]) != render_key([{"b": 2, "a": 1}])  # templates print the order
    assert render_key(tools, {"x": None}) == '[[{"type":"function","function":{"name":"f"}}],{"x":null}]'
    with pytest.raises(InputError):
        render_key([{"f": object()}])


class Said(pydantic.BaseModel):
    role: str
    content: str | None = None


@attrs.frozen
class Spoken:
    role: str
    content: list[Any]


def test_objects_of_client_libraries_become_plain_data() -> None:
    messages: list[Any] = [Said(role="user", content="a"), Spoken("user", [Said(role="x")])]
    assert copied(messages, "prompt") == (
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"role": "x", "content": None}]},
    )
    with pytest.raises(InputError, match=r"prompt\[3\] holds a SimpleNamespace"):
        copied([SimpleNamespace(role="user")], "prompt", 3)  # type: ignore[list-item]  # no fields to read


def test_messages_know_their_opening_and_their_last_user() -> None:
    system, user, reply = {"role": "system", "content": "s"}, example.user(), example.assistant()
    start = Messages.of([system])
    assert (start.opening, start.asked) == ((system,), -1)
    longer = start.then([{**system, "role": "developer"}, user, system])
    assert [message["role"] for message in longer.opening] == ["system", "developer"]
    assert longer.asked == 2
    last = longer.then([reply, user, reply])
    assert last.opening == longer.opening
    assert last.asked == 5
    assert last.then([]) is last
    assert Messages.of([user, system]).opening == ()
    with pytest.raises(InputError, match=r"prompt\[7\] has no role"):
        last.then([{"content": "x"}])
