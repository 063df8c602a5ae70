"""A gateway as a process of its own, to be stopped, and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import attrs
import httpx2

RUN = "from tito_io.serve.command import serve; serve()"


@attrs.frozen
class Process:
    """A gateway that listens."""

    url: str
    process: subprocess.Popen[str]
    complained: Path | None = None
    """Where it writes what it complains of."""

    def warnings(self) -> list[str]:
        """Return the lines that it complained in, where they are kept."""
        assert self.complained is not None
        return self.complained.read_text().splitlines()

    def kill(self) -> None:
        """End it at once: nothing of it runs any more."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 30) -> int:
        """Tell it to stop; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


@contextmanager
def started(
    *options: str,
    complaints: Path | None = None,
    first: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[Process]:
    """Start a gateway on any free port; whatever happens, it does not outlive the block.

    The code `first` runs before it, to change what it does, and `environment` has more variables for it.
    """
    with (complaints or Path(os.devnull)).open("w") as kept:
        process = subprocess.Popen(
            [sys.executable, "-c", first + RUN, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=kept if complaints else None,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
        )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), f"it said {url!r} and ended with {process.poll()}"
        yield Process(url, process, complaints)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


@asynccontextmanager
async def started_beside(*options: str, complaints: Path | None = None) -> AsyncIterator[tuple[Process, Any]]:
    """Start a gateway while this process serves what it asks; yield it, and a client of it."""
    begun = started(*options, complaints=complaints)
    process = await anyio.to_thread.run_sync(begun.__enter__)
    try:
        async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
            yield process, http
    finally:
        process.kill()
        begun.__exit__(None, None, None)
