"""A process that is interrupted, as a terminal does it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD
from typing import IO, AnyStr

STILL_SECONDS = 1.0
"""How long a process sleeps that has nothing to do but to wait for input."""


def interrupt(run: subprocess.Popen[AnyStr], by: signal.Signals = signal.SIGINT) -> tuple[AnyStr, AnyStr]:
    """Interrupt a process, and return what it printed and said until it ended, within a minute."""
    run.send_signal(by)
    try:
        return run.communicate(timeout=60)
    finally:
        run.kill()


def wait_for_input(run: subprocess.Popen[AnyStr], pipe: IO[AnyStr]) -> None:
    """Wait, a minute at most, until a process has read a pipe and sleeps, on a busy machine, too."""
    end, since = time.monotonic() + 60, time.monotonic()
    while time.monotonic() < min(end, since + STILL_SECONDS):
        unread = int.from_bytes(ioctl(pipe, FIONREAD, bytes(4)), sys.byteorder)
        state = Path(f"/proc/{run.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if unread or state != "S":
            since = time.monotonic()
        time.sleep(0.02)
