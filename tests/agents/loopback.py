"""Serve an application on the loopback from a thread, and record what passes on its way to a server."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

START_SECONDS = 10.0
HOP = frozenset(("host", "connection", "transfer-encoding", "content-length", "keep-alive"))
"""Headers that belong to one connection."""
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]


@contextmanager
def listening(application: Any) -> Iterator[str]:
    """Serve an application on a free port; yields its URL."""
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="critical", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        late = time.monotonic() + START_SECONDS
        while not server.started and time.monotonic() < late:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@attrs.define(kw_only=True)
class Exchange:
    """A request and its answer.

    Attributes:
        method: The request's method.
        path: Its path.
        headers: Its headers.
        body: Its body.
        status: The answer's status; 0 until it is sent.
        answer: The answer's body, as far as it came.
        began: When the request came, by the monotonic clock.
        first_byte: Seconds until the first byte of the answer's body.
        seconds: Seconds until its end.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    answer: bytes = b""
    began: float = attrs.field(factory=time.monotonic)
    first_byte: float | None = None
    seconds: float | None = None

    def took(self) -> float:
        """Return the seconds since it began."""
        return time.monotonic() - self.began


@attrs.define
class Recorder:
    """Passes requests on to a server and keeps them."""

    target: str
    exchanges: list[Exchange] = attrs.field(factory=list)
    _client: httpx2.AsyncClient = attrs.field(init=False)

    def app(self) -> Starlette:
        """Return the recorder as an application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with httpx2.AsyncClient(
                base_url=self.target, timeout=None, trust_env=False
            ) as self._client:  # the run has a limit of its own
                yield

        return Starlette(routes=[Route("/{path:path}", self._pass_on, methods=METHODS)], lifespan=lifespan)

    async def _pass_on(self, request: Request) -> StreamingResponse:
        headers = {name: value for name, value in request.headers.items() if name not in HOP}
        path, query = request.url.path, request.url.query
        body = await request.body()
        exchange = Exchange(method=request.method, path=path, headers=headers, body=body)
        self.exchanges.append(exchange)
        url = f"{path}?{query}" if query else path
        sent = self._client.build_request(request.method, url, content=body or None, headers=headers)
        answer = await self._client.send(sent, stream=True)
        exchange.status = answer.status_code

        async def parts() -> AsyncIterator[bytes]:
            try:
                async for part in answer.aiter_raw():
                    exchange.first_byte = exchange.first_byte or exchange.took()
                    exchange.answer += part
                    yield part
            finally:
                exchange.seconds = exchange.took()
                await answer.aclose()

        kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
        return StreamingResponse(parts(), answer.status_code, kept)
