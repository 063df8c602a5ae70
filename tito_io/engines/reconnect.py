"""Repeat connections that were never made: the one failure after which a request may safely be sent again.

Nothing was sent, so nothing ran. A connection that broke later, or an answer that did not come in time, may
have cost a sampled turn, and a repeated request samples another.
"""

from __future__ import annotations

import anyio
import attrs
import httpx2

NOT_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout)
"""A connection that was refused, or not accepted in time, TLS included: both precede a request.

`httpx2.PoolTimeout` is not among them, although nothing was sent: all connections were busy with the caller's
own requests. To wait longer for one, set `httpx2.Timeout(pool=...)`.
"""


@attrs.define(kw_only=True)
class Reconnecting(httpx2.AsyncBaseTransport):
    """A transport that tries again where no connection was made; pass it to an engine as `transport`.

    An engine that is being restarted refuses connections for a while, and a machine that is starting lets
    them time out.

    Attributes:
        attempts: How many times to connect in all, at least 1.
        pause: Seconds before the second attempt; twice as long before each further one.
        inner: The transport that connects.
        refused: How many connections were not made so far, the last attempts included.
    """

    attempts: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    pause: float = attrs.field(default=0.25, validator=attrs.validators.ge(0))
    inner: httpx2.AsyncBaseTransport = attrs.field(factory=httpx2.AsyncHTTPTransport)
    refused: int = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request once, over the first connection that is made."""
        for attempt in range(1, self.attempts):
            try:
                return await self.inner.handle_async_request(request)
            except NOT_CONNECTED:
                self.refused += 1
                await anyio.sleep(self.pause * 2 ** (attempt - 1))
        try:
            return await self.inner.handle_async_request(request)
        except NOT_CONNECTED:
            self.refused += 1
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()
