"""Random draws: the same everywhere, at the rates that were asked for."""

from __future__ import annotations

import pytest

from tito_io.embedded import FaultRates
from tito_io.embedded.rng import Rng


def test_draws_follow_from_the_parts_alone() -> None:
    def draws(*parts: str | int) -> list[int]:
        rng = Rng(*parts)
        return [rng.between(1, 6) for _ in range(20)]

    assert draws("a", 1) == draws("a", 1)
    assert draws("a", 1) != draws("a1")
    assert draws(3)[:5] == [4, 3, 3, 2, 5]


def test_chances_are_never_always_and_in_between() -> None:
    rng = Rng("chances")
    assert not any(rng.chance(0.0) for _ in range(100))
    assert all(rng.chance(1.0) for _ in range(100))
    assert 200 < sum(rng.chance(0.3) for _ in range(1000)) < 400


def test_all_items_are_shuffled_and_each_is_picked() -> None:
    rng = Rng("items")
    assert sorted(rng.shuffled(range(9))) == list(range(9))
    assert {rng.pick("abc") for _ in range(50)} == set("abc")


@pytest.mark.parametrize("rate", [-0.1, 1.1])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        FaultRates(drifts=rate)
