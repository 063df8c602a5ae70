"""Child processes that are stopped together when the command ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import attrs


@attrs.define
class Children:
    """Runs processes for many threads. At the end of the block all are killed, and no new one starts.

    Attributes:
        limit: Seconds after which a process is killed: a fault may make a server of a test serve for ever.
    """

    limit: float = 600.0
    _running: set[subprocess.Popen[bytes]] = attrs.field(factory=set, init=False)
    _over: bool = attrs.field(default=False, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._over = True
            for process in self._running:
                _kill(process)

    def run(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int | None:
        """Return a process's exit status, or None where all are being stopped."""
        with self._lock:
            if self._over:
                return None
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            status = process.wait(self.limit)
        except subprocess.TimeoutExpired:
            _kill(process)
            status = process.wait()
        with self._lock:
            self._running.discard(process)
        return status


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
