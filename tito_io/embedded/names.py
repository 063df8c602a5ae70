"""The names that an answer and its parts go by."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import uuid4

from attrs import frozen
from starlette.requests import Request

from .generation import Generation
from .logprobs import pack
from .rng import digest

VERSION = "0.32.0"
"""The version of the engine whose dialect this is."""
FINGERPRINT = f"vllm-{VERSION}-embedded"


@frozen
class Stamp:
    """What every body of one answer carries."""

    id: str
    kind: str
    created: int
    model: str

    def fields(self) -> dict[str, str | int]:
        """Return the fields as they begin a body."""
        return {"id": self.id, "object": self.kind, "created": self.created, "model": self.model}


def stamp(request: Request, prefix: str, kind: str, model: str) -> Stamp:
    """Name an answer: after the request's `X-Request-Id`, otherwise freely."""
    wished = request.headers.get("x-request-id")
    return Stamp(f"{prefix}-{wished or uuid4().hex[:16]}", kind, int(time.time()), model)


def call_ids(reply: Generation) -> Callable[[int], str]:
    """Return what names the tool calls of a reply: the same names for the same ids, streamed or not."""
    seen = digest("call", pack(reply.prompt), pack(reply.ids))
    return lambda place: f"chatcmpl-tool-{digest(seen, place):016x}"
