"""A gateway as a process of its own, to be stopped, and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

RUN = "from tito_io.serve.command import serve; serve()"


@attrs.frozen
class Process:
    """A gateway that listens."""

    url: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        """End it at once: nothing of it runs any more."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 30) -> int:
        """Tell it to stop; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


@contextmanager
def started(*options: str) -> Iterator[Process]:
    """Start a gateway on any free port; whatever happens, it does not outlive the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), f"it said {url!r} and ended with {process.poll()}"
        yield Process(url, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
