"""A request's ids in digits: those of any chain, and each of them written as seldom as it can be."""

from __future__ import annotations

import gc
import weakref
from array import array
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_core import Ids, Step, Trajectory
from tito_io.engines import digits as module
from tito_io.engines.digits import Digits, Written
from tito_io.engines.wire import encoded

PARTS = st.lists(st.integers(0, 2**32 - 1), max_size=4)
BRANCHES = st.lists(st.tuples(st.integers(0, 30), PARTS, st.booleans()), min_size=1, max_size=30)
"""For each link the one that it goes on from, what it adds, and whether it is packed."""


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def rollout(turns: int, new: int = 3) -> Trajectory:
    """Return a trajectory of some turns, each with `new` ids beside its one sampled id."""
    made, ids, messages = Trajectory(), Ids.of([1]), [message("user", "a")]
    for turn in range(turns):
        ids = ids.then((turn,) * new)
        step = Step(
            prompt=messages,
            completion=[message("assistant", str(turn))],
            prompt_ids=ids,
            completion_ids=[9],
        )
        made = made.append(step)
        ids = made[-1].ids
        messages = [*messages, message("assistant", str(turn)), message("user", "b")]
    return made


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what has been written in digits so far."""
    found: list[int] = []

    def told(part: Sequence[int]) -> bytes:
        found.extend(part)
        return orjson.dumps(list(part))[1:-1]

    monkeypatch.setattr(module, "_digits", told)
    return found


@given(branches=BRANCHES, again=st.lists(st.integers(0, 30), max_size=20))
def test_any_chain_is_written_as_its_list_would_be(branches: Any, again: list[int]) -> None:
    """Links go on from any before them, and are written in any order, some many times."""
    known, chains = Digits(), [Ids.of([])]
    for parent, part, packed in branches:
        base = chains[parent % len(chains)]
        chains.append(Ids(array("I", part), base) if packed else Ids(tuple(part), base))
    for place in [*range(len(chains)), *again]:
        ids = chains[place % len(chains)]
        assert orjson.loads(known.write(b"[", ids, b"]")) == ids.tolist()
        assert known.largest(ids) == max(ids, default=-1)


def test_a_part_with_another_parent_is_another_prompt() -> None:
    known, part = Digits(), array("I", [7])
    one, other = Ids(part, Ids.of([1]).packed()), Ids(part, Ids.of([2]).packed())
    found = [known.write(b"", ids, b"") for ids in (one, other, Ids(part), one)]
    assert found == [b"1,7", b"2,7", b"7", b"1,7"]


def test_a_turn_writes_what_is_new(written: list[int]) -> None:
    known, trajectory = Digits(), rollout(50)
    for step in trajectory:
        assert orjson.loads(known.write(b"[", step.prompt_ids, b"]")) == step.prompt_ids.tolist()
        assert len(written) <= 5
        written.clear()


def test_a_prompt_before_it_is_packed_writes_little_more(written: list[int]) -> None:
    """What is new goes to the engine first, and into a trajectory, which packs it, afterwards."""
    known, trajectory = Digits(), rollout(20)
    known.write(b"", trajectory[-1].ids.then((5, 6)), b"")
    written.clear()
    longer = trajectory[-1].ids.then((5, 6)).packed().then(array("I", [7])).then((8,))
    assert known.write(b"[", longer, b"]") == orjson.dumps(longer.tolist())
    assert written == [5, 6, 7, 8]


@pytest.mark.whole
def test_a_conversation_has_one_body_and_takes_it_along_as_it_goes() -> None:
    texts: dict[int, Written] = {}
    known, trajectory = Digits(texts), rollout(8)
    for step in trajectory:
        known.write(b"", step.prompt_ids, b"")
    assert len(texts) == 1
    del trajectory, step
    gc.collect()
    assert not texts


def test_what_was_written_keeps_nothing_alive() -> None:
    texts: dict[int, Written] = {}
    known, part = Digits(texts), array("I", [1, 2])
    gone = weakref.ref(part)
    known.write(b"", Ids(part, Ids.of([3])), b"")
    del part
    assert gone() is None
    assert not texts


def test_ids_are_written_wherever_they_stand_in_a_body() -> None:
    ids = Ids.of([1, 2]).packed()
    body = {
        "a": "\0 [1]",
        "nvext": {"token_data": ids, "b": [ids, Ids.of([])]},
        "c": 1.5,
        "ids": ids.then((3,)),
    }
    known = Digits()
    for _ in range(2):
        plain = {
            "a": "\0 [1]",
            "nvext": {"token_data": [1, 2], "b": [[1, 2], []]},
            "c": 1.5,
            "ids": [1, 2, 3],
        }
        assert orjson.loads(encoded(body, known)) == plain
    assert encoded({"ids": ids}) == b'{"ids":[1,2]}'


@pytest.mark.whole
def test_an_address_that_was_used_before_says_nothing() -> None:
    """What forgets a part may be interrupted; the next part may stand where that one stood."""
    texts: dict[int, Written] = {}
    digits, root = Digits(texts), Ids.of([1, 2]).packed()
    old, new = root.then(array("I", [111])), root.then(array("I", [222]))
    assert digits.write(b"", old, b"") == b"1,2,111"
    texts[id(new.part)] = texts[id(old.part)]
    del old
    gc.collect()
    assert digits.write(b"", new, b"") == b"1,2,222"
    assert digits.largest(new) == 222
