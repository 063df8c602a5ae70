"""Serve a gateway on a socket until a signal, and then finish what has begun."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.abc
import uvicorn
from starlette.types import ASGIApp

from .address import check_address
from .app import app, full
from .bounds import ConnectionBounds
from .connections import BoundedConnection, log_accept_errors
from .gateway import Gateway
from .logs import ACCESS, AccessLog
from .origins import OriginCheck, TrustedNames
from .unread import DiscardUnread

KEEP_ALIVE_SECONDS = 150
"""Longer than a proxy keeps an idle connection: Caddy 120 s, nginx 60 s. If the gateway closed one first, a
request that the proxy sends just then would fail with 502."""
BACKLOG = 2_048
OWN_SIGNALS = os.name == "posix"
"""Whether signals are received here. On Windows no event loop can; there uvicorn receives them."""


async def serve(
    gateway: Gateway,
    announce: Callable[[str], None],
    *,
    host: str,
    port: int,
    drain_seconds: int,
    bounds: ConnectionBounds,
) -> None:
    """Serve until SIGTERM or SIGINT; raises `InputError` where the socket cannot be opened.

    After a signal no request is accepted; turns in flight are finished and committed, and connections close.

    Args:
        gateway: The gateway.
        announce: Called with the URL as soon as the gateway listens.
        host: A name or address of this machine.
        port: The port; 0 for any free one.
        drain_seconds: How long turns that are being sampled may take after a signal.
        bounds: What connections may use.
    """
    trusted = TrustedNames.of(host, gateway.options.trusted_hosts)

    def checked(inner: ASGIApp) -> ASGIApp:
        application = DiscardUnread(OriginCheck(inner, gateway, trusted))
        return AccessLog(application) if ACCESS.isEnabledFor(logging.INFO) else application

    class Connection(BoundedConnection):
        pass

    Connection.bounds, Connection.full = bounds, checked(full(gateway, bounds.served))
    log_accept_errors(asyncio.get_running_loop())
    config = uvicorn.Config(
        checked(app(gateway)),
        host=host,
        port=port,
        log_config=None,  # `logs` configures uvicorn's logger, too
        access_log=False,  # it would write whole paths, and a session's id is a key
        lifespan="on",
        http=Connection,  # by h11, the one that limits headers
        ws="none",
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=gateway.options.limits.header_bytes,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=drain_seconds,
    )
    check_address(host, port)
    server = _Server(config) if OWN_SIGNALS else uvicorn.Server(config)
    async with anyio.create_task_group() as group:
        if OWN_SIGNALS:
            await group.start(_stop_on_signals, server)
        group.start_soon(_announce, server, host, announce)
        await server.serve()
        # An interrupt that uvicorn received is raised again at its end, and cancels this task: it must be met
        # here, since a scope that is cancelled anyway would take it for its own.
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()


class _Server(uvicorn.Server):
    """Leaves signals alone: before uvicorn has its handlers, one would be lost or end in a traceback."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers."""
        yield


async def _stop_on_signals(server: uvicorn.Server, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Pass signals on to a server, once it serves; a second SIGINT ends it at once."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for one in signals:
            await _serving(server)
            server.handle_exit(one, None)


async def _serving(server: uvicorn.Server) -> None:
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await anyio.sleep(0.005)


async def _announce(server: uvicorn.Server, host: str, announce: Callable[[str], None]) -> None:
    await _serving(server)
    port = server.servers[0].sockets[0].getsockname()[1]
    announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
