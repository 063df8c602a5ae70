"""A gateway on a socket: it serves until it is told to stop, and then ends what it has begun."""

from __future__ import annotations

import signal
import socket as net
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.abc
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
    server = _Server(config)
    async with anyio.create_task_group() as group:
        await group.start(_heeding, server)
        group.start_soon(_announced, server, socket.host, told)
        await server.serve()
        group.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """Leaves signals alone: one that comes before its own handlers would be lost, or end it with a trace."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take no signals."""
        yield


async def _heeding(server: uvicorn.Server, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Pass signals on to a server once it serves; a second SIGINT ends it at once.

    One that came before is heeded where this begins: nothing has been begun then.
    """
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for one in signals:
            await _serving(server)
            server.handle_exit(one, None)


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


async def _serving(server: uvicorn.Server) -> None:
    while not server.started:  # noqa: ASYNC110  # uvicorn tells nobody
        await anyio.sleep(0.005)


async def _announced(server: uvicorn.Server, host: str, told: Callable[[str], None]) -> None:
    await _serving(server)
    port = server.servers[0].sockets[0].getsockname()[1]
    told(f"http://{f'[{host}]' if ':' in host else host}:{port}")
