"""What was kept for ids is found by the same ids alone."""

from __future__ import annotations

from threading import Thread
from typing import Any

from tito_io.integrations.by_ids import ByIds


def test_only_the_same_ids_are_found() -> None:
    kept = ByIds[str](most=10)
    kept.keep([1, 2, 3], "hello")
    assert kept.find([1, 2, 3]) == "hello"
    assert [kept.find(ids) for ids in ([1, 2], [3, 2, 1], [1, 2, 3, 0], [])] == [None] * 4


def test_what_is_no_id_is_not_found() -> None:
    kept = ByIds[str](most=10)
    kept.keep([1], "hello")
    wrong: Any = [[-1], ["1"], [2**32]]
    assert [kept.find(ids) for ids in wrong] == [None] * 3


def test_a_value_may_be_kept_anew() -> None:
    kept = ByIds[str](most=10)
    kept.keep([1], "hello")
    kept.keep([1], "")
    assert kept.find([1]) == ""


def test_what_was_not_used_for_the_longest_time_is_dropped() -> None:
    kept = ByIds[str](most=2)
    for one in (1, 2):
        kept.keep([one], "hello")
    assert kept.find([1]) is not None
    kept.keep([3], "hello")
    assert [kept.find([one]) is not None for one in (1, 2, 3)] == [True, False, True]


def test_nothing_may_be_kept() -> None:
    kept = ByIds[str](most=0)
    kept.keep([1], "hello")
    assert kept.find([1]) is None


def test_threads_share_it() -> None:
    kept = ByIds[str](most=5)

    def use(first: int) -> None:
        for one in range(2000):
            kept.keep([first, one % 11], "hello")
            kept.find([first, (one + 3) % 11])

    threads = [Thread(target=use, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [kept.find([first, place]) for first in range(4) for place in range(11)]
    assert found.count("hello") == 5
