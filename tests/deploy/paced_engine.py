"""The embedded engine behind a socket, which waits where a test says so, and notices clients that leave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import attrs
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.agents.loopback import listening
from tito_io.embedded import app as embedded_app

TURN = "/v1/chat/completions"


@attrs.define(eq=False)
class PacedEngine:
    """An engine whose turns wait before their first byte, or after it.

    Attributes:
        app: The engine's application.
        begins: Whether turns may begin; events of other threads.
        goes_on: Whether a turn may go on after its first event.
        running: How many turns are being answered.
        left: How many turns lost their client.
    """

    app: ASGIApp = attrs.field(factory=embedded_app)
    begins: threading.Event = attrs.field(factory=threading.Event)
    goes_on: threading.Event = attrs.field(factory=threading.Event)
    running: int = 0
    left: int = 0

    def __attrs_post_init__(self) -> None:
        self.free()

    def free(self) -> None:
        """Let everything pass, and forget who left."""
        self.begins.set()
        self.goes_on.set()
        self.left = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and wait on the way."""
        if scope["type"] != "http" or scope["path"] != TURN:
            await self.app(scope, receive, send)
            return
        body = await _body(receive)
        self.running += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._listen, receive, group.cancel_scope)
                await _passed(self.begins)
                await self.app(scope, _known(body), self._slow(send))
                group.cancel_scope.cancel()
        finally:
            self.running -= 1

    async def _listen(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left += 1
        scope.cancel()

    def _slow(self, send: Send) -> Send:
        """Return what sends an answer, and waits after its first events."""
        sent = 0

        async def slow(message: Message) -> None:
            nonlocal sent
            sent += bool(message.get("body"))
            if sent > 8:  # some deltas have left; a gateway keeps the newest back for a while
                await _passed(self.goes_on)
            await send(message)

        return slow


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        part = await receive()
        body, more = body + part.get("body", b""), part.get("more_body", False)
    return body


def _known(body: bytes) -> Receive:
    """Return what receives this body, and then waits for a client that never leaves."""
    parts = [body]

    async def receive() -> Message:
        if not parts:
            await anyio.sleep_forever()
        return {"type": "http.request", "body": parts.pop(), "more_body": False}

    return receive


async def _passed(event: threading.Event) -> None:
    while not event.is_set():  # noqa: ASYNC110  # it is set in another thread
        await anyio.sleep(0.01)


@contextmanager
def paced_engine() -> Iterator[tuple[PacedEngine, str]]:
    """Serve such an engine in a thread; yield it with its URL."""
    engine = PacedEngine()
    with listening(engine) as url:
        try:
            yield engine, url
        finally:
            engine.free()
