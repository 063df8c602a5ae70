"""Shared parts of the command lines: an end after a signal, and options that are whole numbers."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

INTERRUPTED = 130
"""The exit status that shells use after SIGINT."""

P = ParamSpec("P")
R = TypeVar("R")


def interrupted() -> NoReturn:
    """Print a line and exit."""
    sys.stderr.write("interrupted\n")
    sys.exit(INTERRUPTED)


def interruptible(work: Callable[P, R]) -> Callable[P, R]:
    """Decorate a command: an interrupt prints one line and exits. Context managers have closed by then.

    SIGTERM is taken for an interrupt: by default it would end the process at once, and leave its children.
    """

    @wraps(work)
    def run(*args: P.args, **given: P.kwargs) -> R:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return work(*args, **given)
        except KeyboardInterrupt:
            interrupted()
        finally:
            signal.signal(signal.SIGTERM, before)

    return run


def whole(least: int) -> Callable[[str], int]:
    """Return an `argparse` type for whole numbers of at least `least`.

    >>> whole(1)("12")
    12
    """

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return read
