"""Calls that were stored with their whole history share it again, and stay what they were."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.samples.calls import call
from tests.io.samples.sample_files import chat, put, read
from tests.profiles import tries
from tito_core import Ids
from tito_core.samples import StoredCall
from tito_core.testing.strategies.stored_call import CALLS
from tito_io.samples.conversation import RECENT, TAIL, HistorySharing


def flat(one: StoredCall) -> StoredCall:
    """Return a call whose ids share nothing."""
    step = attrs.evolve(one.step, prompt=list(one.step.prompt), prompt_ids=one.step.prompt_ids.tolist())
    return attrs.evolve(one, step=step)


def grown(turns: int, size: int = 20) -> Iterator[StoredCall]:
    """Yield the calls of a conversation, each with the whole history."""
    ids, messages = list[int](), list[dict[str, Any]]()
    for turn in range(turns):
        prompt = [*ids, *range(turn, turn + size)]
        asked = {"role": "user", "content": f"{turn}"}
        made = call(str(turn), prompt, [turn + 7] * size, [*messages, asked], "said", order=turn)
        yield made
        ids = made.ids.tolist()
        messages = [*messages, asked, {"role": "assistant", "content": "said"}]


@given(CALLS, st.integers(0, 3))
@tries(2)
def test_what_is_shared_is_what_it_was(calls: list[StoredCall], tail: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tito_io.samples.conversation.TAIL", tail)
        history = HistorySharing()
        for one in calls:
            again = history.share(flat(one))
            assert again == one
            assert again.step.prompt_ids.tolist() == one.step.prompt_ids.tolist()
            assert orjson.dumps(list(again.step.messages)) == orjson.dumps(list(one.step.messages))


def test_a_history_is_held_once() -> None:
    history = HistorySharing()
    shared = [history.share(one) for one in grown(10)]
    for older, newer in pairwise(shared):
        assert newer.step.prompt_ids.extends(older.ids)
        assert newer.step.prompt.extends(older.step.prompt)


def test_agents_that_take_turns_share_each_their_own() -> None:
    history = HistorySharing()
    left, right = grown(4), (attrs.evolve(one, name=f"r{one.name}") for one in grown(4, size=30))
    shared = [history.share(one) for pair in zip(left, right, strict=True) for one in pair]
    assert all(
        newer.step.prompt_ids.extends(older.ids) for older, newer in zip(shared, shared[2:], strict=False)
    )


def test_the_longest_history_is_taken_and_a_short_one_is_not_looked_for() -> None:
    history, calls = HistorySharing(), list(grown(3))
    shared = [history.share(one) for one in (calls[1], calls[0], calls[2])]
    assert shared[2].step.prompt_ids.extends(shared[0].ids)
    tiny = [HistorySharing().share(call("a", [1], [2])), call("b", [*range(TAIL)], [1])]
    assert tiny[0].step.prompt_ids == [1]


def test_equal_ids_under_other_messages_share_ids_alone() -> None:
    history, (first, second) = HistorySharing(), grown(2)
    older = history.share(first)
    told: list[dict[str, Any]] = [
        {"role": "user", "content": "0", "cached": 1},
        {"role": "assistant", "content": "said"},
    ]
    step = attrs.evolve(second.step, prompt=told)
    newer = history.share(attrs.evolve(second, step=step))
    assert newer.step.prompt_ids.extends(older.ids)
    assert list(newer.step.prompt) == told


def test_a_true_is_no_one() -> None:
    history, (first, second) = HistorySharing(), grown(2)
    one = [{"role": "user", "content": "0", "flag": 1}]
    history.share(attrs.evolve(first, step=attrs.evolve(first.step, prompt=one)))
    true = [{"role": "user", "content": "0", "flag": True}]
    newer = history.share(attrs.evolve(second, step=attrs.evolve(second.step, prompt=true)))
    assert newer.step.prompt[0]["flag"] is True


def test_only_so_many_calls_are_looked_at() -> None:
    history, (first, second) = HistorySharing(), grown(2)
    older = history.share(first)
    for number in range(RECENT):
        history.share(call(f"x{number}", [number] * 20, [1]))
    assert not history.share(second).step.prompt_ids.extends(older.ids)
    assert isinstance(older.step.prompt_ids, Ids)


@pytest.mark.whole
def test_a_long_log_needs_memory_for_what_is_new_in_each_line(tmp_path: Path) -> None:
    records = [
        orjson.dumps(chat(one.name, one.step.prompt_ids.tolist(), one.step.completion_ids.tolist())) + b"\n"
        for one in grown(120, size=160)
    ]
    path = put(tmp_path, b"".join(records))
    assert path.stat().st_size > 8_000_000
    tracemalloc.start()
    (stored,), _ = read(path)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(stored.forest.leaves) == 1
    assert held < 2_500_000
    assert peak < 8_000_000
