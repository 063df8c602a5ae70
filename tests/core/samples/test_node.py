"""Which of several calls with the same ids becomes the parent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.core.samples.calls import call
from tito_core.samples.forest import Forest


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


@pytest.mark.whole
def test_thousands_of_equal_calls_share_their_rivals() -> None:
    twins = [call(f"{i:04}", [1], [2], order=i) for i in range(2_000)]
    children = [call(f"c{i:04}", [1, 2, i], [3], order=i) for i in range(2_000)]
    forest = Forest.of([*twins, *children])
    assert forest["c1000"].parent == "1000"
    assert forest["c1000"].rivals is forest["c0001"].rivals
    assert len(forest["c1000"].rivals) == 2_000
