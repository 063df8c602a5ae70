"""The one failure that may be tried again without a thought: a connection that was never made.

Nothing was sent, so nothing ran. A connection that broke later, and an answer that did not come in time, may
have cost a sampled turn, and whoever asks again samples another.
"""

from __future__ import annotations

import anyio
import attrs
import httpx2

NEVER_MADE = (httpx2.ConnectError, httpx2.ConnectTimeout)
"""A connection that was refused, and one that nobody answered in time, TLS included: both precede a request.

`httpx2.PoolTimeout` is none of them, although nothing was sent either: all connections were busy with one's
own requests, and who wants to wait longer for one says so in `httpx2.Timeout(pool=...)`.
"""


@attrs.define(kw_only=True)
class Reconnecting(httpx2.AsyncBaseTransport):
    """A transport that knocks again where nobody opened: give it to an engine as `transport`.

    An engine that is being restarted refuses connections for a while, and a machine that is lets them time
    out. Only what is in `NEVER_MADE` is tried again; each time is counted.
    """

    attempts: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    """How often to knock in all."""
    pause: float = attrs.field(default=0.25, validator=attrs.validators.ge(0))
    """Seconds before the second knock; twice as long before each further one."""
    inner: httpx2.AsyncBaseTransport = attrs.field(factory=httpx2.AsyncHTTPTransport)
    """What really connects."""
    refused: int = 0
    """How many connections were not made, those after which it gave up included."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request once, over the first connection that is made."""
        for attempt in range(1, self.attempts):
            try:
                return await self.inner.handle_async_request(request)
            except NEVER_MADE:
                self.refused += 1
                await anyio.sleep(self.pause * 2 ** (attempt - 1))
        try:
            return await self.inner.handle_async_request(request)
        except NEVER_MADE:
            self.refused += 1
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()
