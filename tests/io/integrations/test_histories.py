"""Messages that are found by the ids of their prompt."""

from __future__ import annotations

from threading import Thread
from typing import Any

from tito_io.integrations.histories import Histories

HELLO = {"role": "user", "content": "Hello."}


def test_only_the_same_ids_are_found() -> None:
    histories = Histories(most=10)
    histories.keep([1, 2, 3], [HELLO])
    assert histories.find([1, 2, 3]) == (HELLO,)
    assert [histories.find(ids) for ids in ([1, 2], [3, 2, 1], [1, 2, 3, 0], [])] == [None] * 4


def test_what_is_no_id_is_not_found() -> None:
    histories = Histories(most=10)
    histories.keep([1], [HELLO])
    wrong: Any = [[-1], ["1"], [2**32]]
    assert [histories.find(ids) for ids in wrong] == [None] * 3


def test_a_prompt_may_be_told_again() -> None:
    histories = Histories(most=10)
    histories.keep([1], [HELLO])
    histories.keep([1], [])
    assert histories.find([1]) == ()


def test_what_was_not_used_for_the_longest_time_is_dropped() -> None:
    histories = Histories(most=2)
    for one in (1, 2):
        histories.keep([one], [HELLO])
    assert histories.find([1]) is not None
    histories.keep([3], [HELLO])
    assert [histories.find([one]) is not None for one in (1, 2, 3)] == [True, False, True]


def test_nothing_may_be_kept() -> None:
    histories = Histories(most=0)
    histories.keep([1], [HELLO])
    assert histories.find([1]) is None


def test_threads_share_it() -> None:
    histories = Histories(most=5)

    def use(first: int) -> None:
        for one in range(2000):
            histories.keep([first, one % 11], [HELLO])
            histories.find([first, (one + 3) % 11])

    threads = [Thread(target=use, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(histories._kept) == 5
