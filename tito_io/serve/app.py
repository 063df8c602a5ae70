"""The gateway as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from .gateway import Gateway
from .routes import routes, unrouted


def app(gateway: Gateway) -> Starlette:
    """Return the application; it tends its sessions while it lives, and lets go of everything at its end."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.sessions.tend)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await closed(gateway)

    async def missing(request: Request, _: Exception) -> Response:
        return unrouted(gateway, request)

    return Starlette(
        routes=list(routes(gateway)), lifespan=lifespan, exception_handlers={HTTPException: missing}
    )


async def closed(gateway: Gateway) -> None:
    """Let go of the store's and the engine's files and connections."""
    await gateway.sessions.store.aclose()
    await gateway.turns.engine.aclose()
    if gateway.backend is not None:
        await gateway.backend.aclose()
