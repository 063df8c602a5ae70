"""Shared sequences read as lists and share what they extend."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import attrs
import pytest

from tests.core import example
from tito_core import Ids, Ledger, Origin, Trajectory
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
