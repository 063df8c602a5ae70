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

START_SECONDS = 10.0


def binary() -> str | None:
    """Return the server's program."""
    return shutil.which(os.environ.get("TITO_REDIS_SERVER", "redis-server"))


def wanted() -> bool:
    """Tell whether tests with a server are run: where there is one, or where it is asked for."""
    return os.environ.get("TITO_REDIS") == "1" or binary() is not None


@contextmanager
def redis_server() -> Iterator[str]:
    """Run a server that keeps nothing on disk; yield its URL."""
    program = binary()
    if program is None:
        raise RuntimeError("TITO_REDIS=1, and there is no redis-server: put it on the path")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with TemporaryDirectory(prefix="tito-redis-") as folder:
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        process = subprocess.Popen([*command, "--appendonly", "no"], stdout=subprocess.DEVNULL)
        try:
            _wait(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


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
