"""Run a command that ends when the process that asked for it does: `python watched.py PARENT COMMAND...`.

A test run that is killed outright cleans nothing up; the kernel does it then.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

SET_PARENT_DEATH_SIGNAL = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the process that asked for this is gone")
    os.execv(command[0], command)  # noqa: S606  # the tests' own command, and no shell is wanted
