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
    _running: list[tuple[httpx2.AsyncClient, list[None]]] = attrs.field(factory=list, init=False)
    """Each client, and one item for each request that it has now."""

    @contextmanager
    def one(self) -> Iterator[httpx2.AsyncClient]:
        """Return a client for one request, until the end of its answer."""
        free = (pair for pair in self._running if len(pair[1]) < AT_ONCE)
        client, requests = next(free, None) or self._another()
        requests.append(None)
        try:
            yield client
        finally:
            requests.pop()

    def _another(self) -> tuple[httpx2.AsyncClient, list[None]]:
        self._running.append((self.make(), []))
        return self._running[-1]

    async def aclose(self) -> None:
        """Close the connections."""
        for client, _ in self._running:
            await client.aclose()
