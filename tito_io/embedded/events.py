"""Server-sent events: one JSON body after another, then `[DONE]`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import anyio.lowlevel
import orjson
from starlette.responses import Response, StreamingResponse


class JSON(Response):
    """A JSON answer; ids by the hundred thousand are written quickly."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes of `content`."""
        return orjson.dumps(content)


def stream(bodies: Iterable[Any]) -> StreamingResponse:
    """Answer with `bodies`, one event each."""
    return StreamingResponse(_events(bodies), media_type="text/event-stream")


async def _events(bodies: Iterable[Any]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield b"data: " + orjson.dumps(body) + b"\n\n"
        await anyio.lowlevel.checkpoint()
    yield b"data: [DONE]\n\n"
