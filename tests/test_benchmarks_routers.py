"""What the benchmark of routers counts, at the embedded engine: one worker, without a router."""

from __future__ import annotations

import anyio
import pytest

from benchmarks.routers import WAYS, Result, RoutedConversation, Setup, Way, converse, result
from tito_io.engines.registry import embedded

SETUP = Setup("vllm", (), 16)
TURNS = 3


def sampled(way: Way) -> list[RoutedConversation]:
    """Take turns of two conversations."""
    steps = list[None]()
    found = anyio.run(converse, embedded(), way, SETUP, 2, TURNS, lambda: steps.append(None))
    assert len(steps) == 2 * TURNS
    return found


def counted(way: Way) -> Result:
    return result("none", way, sampled(way), lambda _: "0")


@pytest.mark.parametrize("way", WAYS[:2])
def test_exact_ids_find_all_that_is_available(way: Way) -> None:
    found = counted(way)
    assert 0 < found.available == found.cached < found.prompt
    assert (found.stayed, found.conversations, found.shares) == (2, 2, (2 * TURNS,))


def test_a_conversation_that_moves_has_not_stayed() -> None:
    found = sampled(WAYS[0])
    seen = iter("001000")
    moved = result("none", WAYS[0], found, lambda _: next(seen))
    assert (moved.stayed, moved.shares) == (1, (5, 1))


def test_first_turns_are_not_counted() -> None:
    (first, second) = sampled(WAYS[0])
    assert counted(WAYS[0]).prompt == sum(turn.prompt for one in (first, second) for turn in one.turns[1:])
