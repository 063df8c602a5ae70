"""A proxy that passes bytes on, with the gateway's own HTTP libraries: `python -m ...byte_proxy URL`.

It is the floor of every gateway that is written with them: it neither reads nor keeps anything.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from benchmarks.gateway.processes import serve_here
from tito_io.engines.clients import Clients
from tito_io.serve.server import KEEP_ALIVE_SECONDS


def application(upstream: str) -> Starlette:
    """Return the proxy in front of a server."""
    limits = httpx2.Limits(keepalive_expiry=2.0)
    clients = Clients(partial(httpx2.AsyncClient, timeout=600, limits=limits))  # as the gateway's

    async def forward(request: Request) -> Response:
        with ExitStack() as stack:
            client = stack.enter_context(clients.one())
            content = await request.body()
            sent = client.build_request("POST", upstream + request.url.path, content=content)
            try:
                answer = await client.send(sent, stream=True)
            except httpx2.RequestError:  # the engine closed the connection: clients repeat the request
                return Response(status_code=503)
            kind = answer.headers["content-type"]
            if not kind.startswith("text/event-stream"):
                return Response(await answer.aread(), media_type=kind)
            rest = stack.pop_all()

        async def parts() -> AsyncIterator[bytes]:
            with rest:
                async for part in answer.aiter_raw():
                    yield part
                await answer.aclose()

        return StreamingResponse(parts(), media_type=kind)

    return Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])])


if __name__ == "__main__":
    serve_here(application(sys.argv[1]), KEEP_ALIVE_SECONDS)  # as the gateway does
