"""How much memory a process has taken."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")


def peak_megabytes() -> int:
    """Return the most memory that this process has had.

    On Linux `getrusage` counts what the process that started this one had at that moment, too.
    """
    if STATUS.exists():
        lines = STATUS.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak >> (20 if sys.platform == "darwin" else 10)
