"""Read what is left of a request's body before the request is refused.

A refusal may be known before the body was read: it is too long, or its key is unknown. If the gateway
answered and closed the connection then, a client that is still sending would see its connection reset and
lose the answer: nginx made 502 of every second such answer.
"""

from __future__ import annotations

from http import HTTPStatus

import anyio
import attrs
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES = 256 << 20
MOST_SECONDS = 10.0


@attrs.define
class _Body:
    """A request's body while it is received.

    Attributes:
        receive: Receives an ASGI message.
        more: Whether a part may be left.
    """

    receive: Receive
    more: bool = True

    async def part(self) -> Message:
        """Receive a message, and note whether it is the last one of the body."""
        message = await self.receive()
        self.more = message["type"] == "http.request" and message.get("more_body", False)
        return message

    async def discard(self, most: int, seconds: float) -> None:
        """Receive what is left, within limits: a client could send for ever."""
        with anyio.move_on_after(seconds):
            while self.more and most > 0:
                most -= len((await self.part()).get("body", b""))


@attrs.frozen
class DiscardUnread:
    """Discards the rest of a body before an error is sent, unless the body is what took too long.

    Attributes:
        app: The application.
        most: The most bytes that are discarded; after them the answer is sent all the same.
        seconds: How long it may take.
    """

    app: ASGIApp
    most: int = MOST_BYTES
    seconds: float = MOST_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        # Who asks with `expect` sends no body before an answer, and none at all after an error.
        if scope["type"] != "http" or "expect" in Headers(scope=scope):
            await self.app(scope, receive, send)
            return
        body = _Body(receive)

        async def sent(message: Message) -> None:
            status = message.get("status", 0)
            if status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.REQUEST_TIMEOUT:
                await body.discard(self.most, self.seconds)
            await send(message)

        await self.app(scope, body.part, sent)
