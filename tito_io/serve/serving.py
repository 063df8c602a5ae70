"""A gateway on a socket: it serves until it is told to stop, and then ends what it has begun."""

from __future__ import annotations

import signal
import socket as net
from collections.abc import Callable

import anyio
import attrs
import uvicorn

from tito_core import InputError

from .app import app
from .gateway import Gateway

KEEP_ALIVE_SECONDS = 75
BACKLOG = 2_048


@attrs.frozen(kw_only=True)
class Socket:
    """Where a gateway listens."""

    host: str
    port: int
    """0 for any that is free."""
    drain_seconds: int
    """How long turns that are being sampled may take once it is told to stop."""


async def serve(gateway: Gateway, socket: Socket, told: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `told` is called with the URL as soon as it listens.

    On a signal nothing new is taken on, what is in flight is ended and committed, and connections close.
    """
    config = uvicorn.Config(
        app(gateway),
        host=socket.host,
        port=socket.port,
        log_level="warning",
        access_log=False,
        lifespan="on",
        http="h11",  # the one that limits headers
        ws="none",
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=gateway.caps.header_bytes,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=socket.drain_seconds,
    )
    _check(socket)
    server = uvicorn.Server(config)
    before = [(one, signal.signal(one, signal.SIG_IGN)) for one in (signal.SIGTERM, signal.SIGINT)]
    try:  # the server raises a signal again that it has heeded, which must not end the process
        async with anyio.create_task_group() as group:
            group.start_soon(_announced, server, socket.host, told)
            await server.serve()
            group.cancel_scope.cancel()
    finally:
        for one, handler in before:
            signal.signal(one, handler)


def _check(socket: Socket) -> None:
    """Take the address and give it back; raises `InputError` where it cannot be had.

    The server, which takes it next, would end the process with a trace.
    """
    family = net.AF_INET6 if ":" in socket.host else net.AF_INET
    try:
        net.create_server((socket.host, socket.port), family=family).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"{socket.host}:{socket.port} cannot be listened on: {error}; choose another --host or --port"
        ) from None


async def _announced(server: uvicorn.Server, host: str, told: Callable[[str], None]) -> None:
    while not server.started:  # noqa: ASYNC110  # uvicorn tells nobody
        await anyio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    told(f"http://{f'[{host}]' if ':' in host else host}:{port}")
