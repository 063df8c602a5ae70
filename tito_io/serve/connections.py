"""Close connections that are too many, or whose requests take too long to arrive."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .bounds import ConnectionBounds
from .logs import LOG
from .turn_handler import CLOSING

ACCEPT_FAILED = "socket.accept() out of system resource"
"""How asyncio's message begins where a connection cannot be accepted."""
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class BoundedConnection(H11Protocol):
    """A connection of uvicorn that is closed where a request takes too long to arrive.

    uvicorn itself has a timeout between requests alone, and counts only connections whose headers arrived.

    Attributes:
        bounds: What connections may use.
        full: Answers the requests of connections that are not served.
    """

    bounds: ClassVar[ConnectionBounds]
    full: ClassVar[Any]  # an ASGIApp; mypy would take a function for a method
    _deadline: asyncio.TimerHandle | None = None
    _answered = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take a connection, or end it where too many are open."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.accepted:
            transport.abort()
        elif len(self.connections) > self.bounds.served:
            self.app: Any = self.full
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        super().connection_lost(exc)
        self._forget()

    def handle_events(self) -> None:
        """Read what has arrived, and look at what is still missing."""
        super().handle_events()
        scope: Any = self.scope
        if scope is not None:  # the application is called later
            scope["extensions"] = {CLOSING: self.transport.is_closing}
        self._watch()

    def on_response_complete(self) -> None:
        """End a request, of whose body a part may still be missing."""
        self._answered = True
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Begin the time of what a client must send next, or end it once that has arrived."""
        if self.transport.is_closing() or not self._overdue():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.bounds.header_seconds, self._expire)

    def _overdue(self) -> bool:
        """Return whether headers are missing, or a part of a body whose request was answered.

        The time of other bodies is that of `Gateway.body`, and uvicorn's own is that between two requests.
        """
        if self.conn.their_state is h11.SEND_BODY:
            return bool(self.cycle.response_complete)
        return self.conn.their_state is h11.IDLE and (not self._answered or self._begun())

    def _begun(self) -> bool:
        return bool(self.conn.trailing_data[0])

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        """Close the connection, with status 408 if a request had begun."""
        self._deadline = None
        if self.conn.their_state is h11.IDLE and self._begun():
            self.transport.write(LATE)
        self.transport.close()


def log_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log connections that cannot be accepted once a second at most; asyncio logs each of `backlog` tries."""
    shown = loop.time() - 1

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal shown
        if not str(context.get("message")).startswith(ACCEPT_FAILED):
            loop.default_exception_handler(context)
        elif loop.time() - shown >= 1:
            shown = loop.time()
            LOG.error("connections cannot be accepted: %s; allow more open files", context.get("exception"))

    loop.set_exception_handler(handle)
