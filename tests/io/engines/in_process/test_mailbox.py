"""Items from other threads."""

from __future__ import annotations

import asyncio
from threading import Thread

import anyio
import pytest

from tito_io.engines.in_process.mailbox import Mailbox

pytestmark = pytest.mark.anyio


async def test_items_of_another_thread_come_in_order_and_end() -> None:
    box: Mailbox[int] = Mailbox()

    def work() -> None:
        for number in range(100):
            box.put(number)
        box.close()
        box.put(-1)
        box.close(KeyError("too late"))

    thread = Thread(target=work)
    thread.start()
    found = [await box.receive() for _ in range(101)]
    assert found == [*range(100), None]
    thread.join()
    await anyio.wait_all_tasks_blocked()
    assert await box.receive() is None


async def test_an_error_comes_after_the_items() -> None:
    box: Mailbox[int] = Mailbox()
    box.put(1)
    box.close(KeyError("engine"))
    assert await box.receive() == 1
    with pytest.raises(KeyError):
        await box.receive()


async def test_a_cancelled_receiver_takes_nothing_more() -> None:
    """Also where items wait, as those of a fast engine do."""
    box: Mailbox[int] = Mailbox()
    box.put(1)
    await anyio.wait_all_tasks_blocked()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await box.receive()
    assert scope.cancelled_caught
    assert await box.receive() == 1


def test_an_ended_loop_drops_what_comes() -> None:
    """A thread that samples must not fail where the caller's loop has ended."""

    async def made() -> Mailbox[int]:
        return Mailbox()

    box = asyncio.run(made())
    box.put(1)
    box.close()
    assert not box.closed.is_set()
