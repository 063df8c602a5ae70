"""Hold interrupts back, and let the reader of standard output leave early."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def output_may_close() -> Iterator[None]:
    """Let the reader of standard output leave early, as `head` does: the rest is computed and not printed.

    For commands whose exit status or files matter without their output.
    """
    try:
        yield
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Send the rest of the output nowhere, so that Python does not fail when it flushes it at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Hold SIGINT back until the end of the block, which then raises `KeyboardInterrupt`.

    An interrupt in the middle of importing a C extension may crash the process.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows: interrupts come at once
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
