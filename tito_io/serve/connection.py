"""A client's connection while it waits: what was handed to it, and whether it is still there."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import attrs
import orjson
from starlette.types import Message, Receive, Send

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
STREAMED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""What keeps proxies from collecting a stream."""


@attrs.define
class ClientConnection:
    """One answer on its way."""

    send: Send
    gone: bool = attrs.field(default=False, init=False)
    """Whether the client went away, as far as it is known."""
    begun: bool = attrs.field(default=False, init=False)
    over: bool = attrs.field(default=False, init=False)

    async def listen(self, receive: Receive, waiting: anyio.CancelScope) -> None:
        """Wait until the client goes away; then nobody waits for the answer."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        waiting.cancel()

    async def whole(self, status: int, body: bytes, kind: str, headers: Mapping[str, str]) -> None:
        """Hand over an answer in one piece."""
        await self._start(status, {"content-type": kind, "content-length": str(len(body)), **headers})
        await self.last(body)

    async def json(self, status: int, body: object, headers: Mapping[str, str]) -> None:
        """Hand over JSON."""
        await self.whole(status, orjson.dumps(body), JSON, headers)

    async def stream(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of events."""
        await self._start(200, {"content-type": EVENTS, **STREAMED, **headers})

    async def more(self, data: bytes) -> None:
        """Hand over a part of a stream."""
        if data:
            await self._sent({"type": "http.response.body", "body": data, "more_body": True})

    async def last(self, data: bytes) -> None:
        """Hand over the end."""
        await self._sent({"type": "http.response.body", "body": data, "more_body": False})
        self.over = True

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.begun = True
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._sent({"type": "http.response.start", "status": status, "headers": raw})

    async def _sent(self, message: Message) -> None:
        """Hand a message to the server; a connection that does not take it is gone."""
        try:
            await self.send(message)
        except Exception:
            self.gone = True
            raise
