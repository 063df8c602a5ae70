"""A process that is interrupted, as a terminal does it."""

from __future__ import annotations

import signal
import subprocess
from typing import AnyStr


def interrupt(run: subprocess.Popen[AnyStr], by: signal.Signals = signal.SIGINT) -> tuple[AnyStr, AnyStr]:
    """Interrupt a process, and return what it printed and said until it ended, within a minute."""
    run.send_signal(by)
    try:
        return run.communicate(timeout=60)
    finally:
        run.kill()
