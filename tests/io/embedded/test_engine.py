"""The prefix cache counts what a real one would find; it stores nothing else."""

import pytest

from tito_io.embedded import engine
from tito_io.embedded.engine import BLOCK, PrefixCache


def test_a_block_is_known_only_after_the_blocks_before_it() -> None:
    kept = PrefixCache()
    kept.keep([*range(BLOCK), *range(BLOCK)])
    assert kept.cached([*range(BLOCK), *range(BLOCK), 0]) == 2 * BLOCK
    assert kept.cached([*range(BLOCK), *range(1, BLOCK + 1), 0]) == BLOCK
    assert kept.cached([*[0] * BLOCK, *range(BLOCK), 0]) == 0
    assert kept.cached([]) == 0


def test_the_oldest_blocks_are_forgotten_and_used_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BLOCKS", 2)
    kept = PrefixCache()
    for first in (1, 2, 1, 3):
        kept.keep([first] * BLOCK)
    assert [kept.cached([first] * (BLOCK + 1)) for first in (1, 2, 3)] == [BLOCK, 0, BLOCK]
