"""What the command lines of the benchmarks share: how an interrupt ends them, and how they read numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from typing import NoReturn, ParamSpec, TypeVar

INTERRUPTED = 130
"""The exit status that shells have for it."""

P = ParamSpec("P")
R = TypeVar("R")


def interrupted() -> NoReturn:
    """End with a line."""
    sys.stderr.write("interrupted\n")
    sys.exit(INTERRUPTED)


def interruptible(work: Callable[P, R]) -> Callable[P, R]:
    """End with a line where the work is interrupted; what it started has ended by then."""

    @wraps(work)
    def run(*args: P.args, **given: P.kwargs) -> R:
        try:
            return work(*args, **given)
        except KeyboardInterrupt:
            interrupted()

    return run


def whole(least: int) -> Callable[[str], int]:
    """Return what reads an option's number, for `argparse`.

    >>> whole(1)("12")
    12
    """

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return read
