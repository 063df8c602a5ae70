"""The tree of ids compares only what is new."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.core.example import user
from tests.core.samples.calls import call, counting, rollout
from tito_core.samples import trie
from tito_core.samples.call import StoredCall
from tito_core.samples.forest import Forest


@pytest.mark.parametrize("turned", [lambda calls: calls, lambda calls: calls[::-1]], ids=["forth", "back"])
def test_shared_histories_cost_what_is_new(
    turned: Callable[[list[StoredCall]], list[StoredCall]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice the turns are twice the work: no history is compared or hashed again."""
    work = []
    for turns in (100, 200):
        calls = turned(rollout(turns))
        counts = counting(monkeypatch, trie, "common_length")
        forest = Forest.of(calls)
        monkeypatch.undo()
        assert len(forest.path(f"{turns - 1}")) == turns
        work.append(counts[0])
    assert work[1] <= 2 * work[0] + 10
    assert work[1] <= 4 * 200


def test_unrelated_calls_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [call(f"{i}", [i, 1, 2], [3], [user(f"{i}")], "hello") for i in range(300)]
    counts = counting(monkeypatch, trie, "common_length")
    assert len(Forest.of(calls).roots) == 300
    assert counts[0] <= 4 * 300
