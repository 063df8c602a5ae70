"""The selection of breaks to show: bounded, every cause first, sums in any order."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.core.drift.conversations import (
    Family,
    forgetful,
)
from tests.core.drift.random_turns import TURNS, Turn, calls_of
from tito_core.drift import Audited, Break, BreakSelection, Cause, Tally, audit
from tito_core.samples import Forest


def _audits(lists: Sequence[Sequence[Turn]]) -> list[Audited]:
    return [
        audit(Forest.of(calls_of(turns)), Family(forgetful), name=f"c{i}") for i, turns in enumerate(lists)
    ]


@given(st.lists(TURNS, min_size=1, max_size=3), st.integers(1, 4))
def test_what_is_shown_is_bounded_and_has_every_cause_first(lists: list[list[Turn]], most: int) -> None:
    breaks: list[Break] = [one for audited in _audits(lists) for one in audited.breaks]
    shown = BreakSelection(most).with_breaks(breaks).shown
    causes = [cause for cause in Cause if any(one.cause is cause for one in breaks)]
    assert len(shown) == min(most, len(breaks))
    assert {one.cause for one in shown} >= set(causes[:most]) or len(shown) < len(causes)
    for one in shown[:1]:
        assert one.key == min(other.key for other in breaks if other.cause is one.cause)


@given(st.lists(TURNS, min_size=3, max_size=3), st.permutations(range(3)), st.integers(0, 3))
def test_adding_is_commutative_and_associative(lists: list[list[Turn]], order: list[int], most: int) -> None:
    audits = _audits(lists)
    values = [(one.tally, BreakSelection(most).with_breaks(one.breaks)) for one in audits]
    (a, x), (b, y), (c, z) = values
    (d, u), (e, v), (f, w) = (values[place] for place in order)
    assert (a + b) + c == a + (b + c) == (d + e) + f
    assert (x + y) + z == x + (y + z) == (u + v) + w
    assert a + Tally() == a
    assert x + BreakSelection(most) == x
