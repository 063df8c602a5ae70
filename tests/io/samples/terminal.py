"""Run a command with its standard error, or both streams, on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence

COMMAND = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
"""A shell may have made a background process ignore interrupts."""


def tito(*options: str) -> list[str]:
    """Return the command line of `tito` that heeds interrupts."""
    return [sys.executable, "-c", f"{COMMAND}; from tito_io.cli.main import main; main()", *options]


def on_terminal(command: Sequence[str], *, stdout: bool = False, columns: int = 120) -> tuple[bytes, bytes]:
    """Return what a command prints on a pipe and on a terminal, where `stdout` goes too if asked for."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown: list[bytes] = []
    reader = threading.Thread(target=_read, args=(ours, shown))
    reader.start()
    env = {**os.environ, "TERM": "xterm"}
    env.pop("COLUMNS", None)
    out = terminal if stdout else subprocess.PIPE
    with subprocess.Popen(command, stdout=out, stderr=terminal, env=env) as process:
        os.close(terminal)
        printed, _ = process.communicate(timeout=120)
    reader.join()
    os.close(ours)
    return printed or b"", b"".join(shown)


def _read(terminal: int, shown: list[bytes]) -> None:
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # how Linux ends a terminal that no process has open
            return
        if not data:
            return
        shown.append(data)
