"""HTTP clients of one server, each with few connections.

A client looks through all of its connections twice for each request, and asks the operating system about each
that is idle (`_assign_requests_to_connections` in `httpcore2/_async/connection_pool.py`). With 250 turns at
once that took 2 ms of processor time a turn. So each client gets few turns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import httpx2

AT_ONCE = 16
"""How many requests a client has at once, before there is another client."""


@attrs.define
class Clients:
    """Clients of one server. The first ones are used most, so that few connections stay open.

    Attributes:
        make: Makes another client.

    >>> clients = Clients(httpx2.AsyncClient)
    >>> with clients.one() as first, clients.one() as second:
    ...     first is second
    True
    """

    make: Callable[[], httpx2.AsyncClient]
    _requests: dict[httpx2.AsyncClient, int] = attrs.field(factory=dict, init=False)
    """How many requests each client has now."""

    @contextmanager
    def one(self) -> Iterator[httpx2.AsyncClient]:
        """Return a client for one request, until the end of its answer."""
        free = (client for client, requests in self._requests.items() if requests < AT_ONCE)
        client = next(free, None) or self.make()
        self._requests[client] = self._requests.get(client, 0) + 1
        try:
            yield client
        finally:
            self._requests[client] -= 1

    async def aclose(self) -> None:
        """Close the connections."""
        for client in self._requests:
            await client.aclose()
