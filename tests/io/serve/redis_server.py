"""A Redis server for tests: found on the path, or named by TITO_REDIS_SERVER; TITO_REDIS=1 demands one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import attrs

START_SECONDS = 10.0
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no")
"""What is acknowledged is on the disk."""


def binary() -> str | None:
    """Return the server's program."""
    return shutil.which(os.environ.get("TITO_REDIS_SERVER", "redis-server"))


def wanted() -> bool:
    """Tell whether tests with a server are run: where there is one, or where it is asked for."""
    return os.environ.get("TITO_REDIS") == "1" or binary() is not None


@attrs.define
class Redis:
    """A server that can be killed and begun again, at the same place."""

    program: str
    port: int
    folder: str
    kept: tuple[str, ...]
    """What it is told of keeping things on disk."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        place = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", self.folder)
        command = [self.program, *place, "--save", "", *self.kept]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _wait(self.port)

    def kill(self) -> None:
        """End it at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()


@contextmanager
def redis_process(*, durable: bool = False) -> Iterator[Redis]:
    """Run a server, which keeps nothing on disk unless it is `durable`."""
    program = binary()
    if program is None:
        raise RuntimeError("TITO_REDIS=1, and there is no redis-server: put it on the path")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with TemporaryDirectory(prefix="tito-redis-") as folder:
        server = Redis(program, port, folder, DURABLE if durable else ("--appendonly", "no"))
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextmanager
def redis_server() -> Iterator[str]:
    """Run a server that keeps nothing on disk; yield its URL."""
    with redis_process() as server:
        yield server.url


def _wait(port: int) -> None:
    late = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > late:
                raise
            time.sleep(0.02)
        else:
            return
