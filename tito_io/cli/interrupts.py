"""An interrupt that waits: modules that are not Python may crash where one comes while they are imported."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held() -> Iterator[None]:
    """Let SIGINT wait for the end of the block, which then raises `KeyboardInterrupt`."""
    if not hasattr(signal, "pthread_sigmask"):  # a system without masks interrupts as it always did
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
