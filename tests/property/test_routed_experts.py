"""Rows of engines that lose some: each valid row is true, and each position that could be known is valid.

An engine loses rows as real ones do: zeros in place of the row, the row before once more, none for the last
positions. The row of a call's last id is anything. One row cannot be judged: with the row before it equal, or
zeros of one expert per layer, a true row looks like a lost one. It is believed where no other row is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import tries
from tito_core.samples.experts import MissingRow, RoutedExperts, merge_experts

LOSSES = ("", "", "", "", "zeros", "repeat")


@attrs.frozen
class Sent:
    """One call: its rows from a position on, and how many positions went through the model."""

    start: int
    rows: list[bytes]
    passed: int

    def row(self, place: int) -> bytes | None:
        """Return the row of a position that went through the model."""
        known = self.start <= place < min(self.start + len(self.rows), self.passed)
        return self.rows[place - self.start] if known else None

    def repeats(self, place: int) -> bool:
        return place > self.start and self.row(place) == self.rows[place - self.start - 1]


@attrs.frozen
class Rollout:
    """The true rows, and what the engine sent of them, call by call."""

    experts: int
    layers: int
    true: list[bytes]
    calls: list[Sent]


def lost(row: bytes, before: bytes | None, loss: str) -> bytes:
    if loss == "zeros":
        return bytes(len(row))
    return before if loss == "repeat" and before is not None else row


def sent(true: Sequence[bytes], start: int, stop: int, draw: Any) -> Sent:
    """Return a call of `stop` ids, of which the last has no true row."""
    rows: list[bytes] = []
    for row in true[start : stop - 1]:
        rows.append(lost(row, rows[-1] if rows else None, draw(st.sampled_from(LOSSES))))
    short = draw(st.sampled_from((0, 0, 0, 1, 2)))
    filled = [draw(st.sampled_from(true))] if draw(st.booleans()) and not short else []
    return Sent(start, [*rows[: len(rows) - short], *filled], stop - 1)


@st.composite
def rollouts(draw: Any) -> Rollout:
    experts, layers = draw(st.sampled_from((1, 2))), draw(st.sampled_from((1, 2)))
    routes = [b"".join(map(bytes, row)) for row in product(permutations(range(3), experts), repeat=layers)]
    true = draw(st.lists(st.sampled_from(routes), min_size=2, max_size=12))
    stops = sorted(draw(st.lists(st.integers(1, len(true)), min_size=1, max_size=4)))
    starts = [draw(st.integers(0, stop - 1)) for stop in stops]
    return Rollout(
        experts, layers, true, [sent(true, a, b, draw) for a, b in zip(starts, stops, strict=True)]
    )


@given(rollouts(), st.sampled_from(MissingRow))
@tries(3)
def test_a_valid_row_is_true_and_a_known_row_is_valid(rollout: Rollout, missing: MissingRow) -> None:
    size = rollout.experts * rollout.layers
    calls = [
        RoutedExperts(
            data=b"".join(one.rows),
            dtype="uint8",
            shape=(len(one.rows), rollout.layers, rollout.experts),
            start=one.start,
        )
        for one in rollout.calls
    ]
    named = [
        (str(n), one.passed, experts)
        for n, (one, experts) in enumerate(zip(rollout.calls, calls, strict=True))
    ]
    merged = merge_experts(named, len(rollout.true), missing)
    assert merged is not None
    valid = {place for start, stop in merged.valid for place in range(start, stop)}
    corrected = {place for start, stop in merged.corrected for place in range(start, stop)}
    for place, true in enumerate(rollout.true):
        rows = [(row, one.repeats(place)) for one in rollout.calls if (row := one.row(place)) is not None]
        routes = [(row, repeats) for row, repeats in rows if any(row) or rollout.experts == 1]
        sound = [row for row, repeats in routes if any(row) and not repeats]
        assert (place in valid) == bool(routes)
        if routes:
            found = merged.data[place * size : (place + 1) * size]
            assert found == (true if sound else routes[0][0])
            assert (place in corrected) == (found != routes[0][0])
