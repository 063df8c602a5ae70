"""Servers in processes of their own, and what each has used: processor seconds and memory. Linux only."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import uvicorn

from tito_io.embedded import write_family

GATEWAY = "from tito_io.serve.command import serve; serve()"


@attrs.frozen
class ServerProcess:
    """A server that runs beside this process.

    Attributes:
        url: Its address.
        pid: Its process.
    """

    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """Return the processor seconds that it has used, in nanosecond steps.

        Linux has a clock for each process, whose number is made of the process's (`clock_getcpuclockid`).
        """
        return time.clock_gettime(~self.pid << 3 | 2)

    def memory(self, kind: str = "VmRSS") -> int:
        """Return its memory in bytes; of kind `VmHWM` the most that it ever had."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(kind))

    def files(self) -> int:
        """Return how many files it has open, connections among them."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())


@contextmanager
def started(*command: str) -> Iterator[ServerProcess]:
    """Start a program that prints its address first; end it afterwards."""
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=path)  # noqa: S603  # our own
    try:
        assert process.stdout is not None  # noqa: S101  # it was asked for
        yield ServerProcess(process.stdout.readline().strip(), process.pid)
    finally:
        process.terminate()
        process.wait()


@attrs.frozen
class Servers:
    """What is compared.

    Attributes:
        engine: The engine alone.
        proxy: A proxy that passes bytes on to it.
        gateway: The gateway in front of it.
    """

    engine: ServerProcess
    proxy: ServerProcess
    gateway: ServerProcess


@contextmanager
def servers(folder: Path, store: str, sampled: int, pause: float = 0.0) -> Iterator[Servers]:
    """Start an engine, a proxy and a gateway.

    Args:
        folder: Where the model folder is written.
        store: The gateway's session store.
        sampled: How many ids a turn has.
        pause: Seconds between the events of a stream.
    """
    write_family(folder / "family")
    family = str(folder / "family")
    with ExitStack() as stack:
        arguments = (family, str(sampled), str(pause))
        engine = stack.enter_context(started("-m", "benchmarks.gateway.upstream", *arguments))
        proxy = stack.enter_context(started("-m", "benchmarks.gateway.byte_proxy", engine.url))
        options = ("--engine", "vllm", "--base-url", engine.url, "--family", family, "--store", store)
        gateway = stack.enter_context(started("-c", GATEWAY, "--port", "0", *options))
        yield Servers(engine, proxy, gateway)


def serve_here(application: Any, keep_alive: int = 5) -> None:
    """Serve an ASGI application on a free port until the process ends; print its address.

    Connections are closed that are idle for `keep_alive` seconds.
    """
    # With the protocol: else asyncio would let small parts wait for each other (Nagle's algorithm).
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="critical",
        timeout_keep_alive=keep_alive,
    )
    uvicorn.Server(config).run([listening])
