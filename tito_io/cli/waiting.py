"""Report on stderr how long a command has waited for an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from .errors import complain

FIRST = 10.0
"""Seconds until the first line; each further line comes after twice as long."""


@contextmanager
def waiting_reported(timeout: float, address: str, turn: int) -> Iterator[None]:
    """Write a line to stderr after 10, 20, 40 ... seconds of the block, until the block ends.

    Args:
        timeout: Seconds after which the request will be given up, as the lines state it.
        address: The engine's address, as the lines name it.
        turn: The number of the turn that the engine samples; each turn's seconds begin at 0.
    """
    ended = Event()

    def report() -> None:
        waited, pause = 0.0, FIRST
        while not ended.wait(pause):
            waited += pause
            text = f"turn {turn}: waiting for {address} to sample it"
            complain(f"{text} ({waited:g} s so far; --timeout {timeout:g})")
            pause = waited

    # A thread and not a task: it reports also where an engine in this process holds up the event loop.
    reporter = Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()
