"""What a gateway is made of, and what all its routes share."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import attrs
import orjson
from starlette.requests import Request

from tito_io.dialects.protocol import TokenText, as_id

from .auth import Keys
from .backend import Backend
from .limits import Caps
from .metrics import Metrics
from .refusals import RequestRefused, told, too_long
from .session import Head
from .sessions import Sessions
from .sglang_fields import SessionWire
from .turns import TurnTaker


@attrs.define(kw_only=True, eq=False)
class Gateway:
    """A gateway, ready to be served by `app.app`."""

    turns: TurnTaker
    sessions: Sessions
    names: Keys
    metrics: Metrics
    caps: Caps
    wire: SessionWire = attrs.field(factory=SessionWire)
    ignoring: frozenset[str] = frozenset()
    """Request fields that are accepted without effect."""
    backend: Backend | None = None
    """The engine's own routes, for what is passed on."""
    spell: TokenText = as_id
    """The text of an id, where a vocabulary is at hand."""
    decode: Callable[[list[int]], str] | None = None
    clock: Callable[[], float] = attrs.field(kw_only=True)
    instance: str = attrs.field(factory=lambda: secrets.token_hex(16))
    """What this process calls itself."""

    async def session_name(self, request: Request) -> str:
        """Return the session that a turn is for, opened where its name opens one."""
        named = self.names.session(request)
        if named.opens:
            await self.sessions.open(Head(created=self.clock()), named.name)
        return named.name

    async def body(self, request: Request) -> bytes:
        """Return a request's body, if it is not too long."""
        most, said = self.caps.body_bytes, request.headers.get("content-length", "")
        if said.isdecimal() and int(said) > most:
            raise too_long(most, int(said))
        parts, size = [], 0
        async with aclosing(request.stream()) as stream:
            async for part in stream:
                size += len(part)
                if size > most:
                    raise too_long(most)
                parts.append(part)
        return b"".join(parts)

    async def json(self, request: Request) -> dict[str, Any]:
        """Return a request's body, a JSON object; none at all is an empty one."""
        raw = await self.body(request)
        try:
            found = orjson.loads(raw) if raw else {}
        except orjson.JSONDecodeError as error:
            raise _bad(f"the body is no JSON: {error.msg:.80}") from None
        if not isinstance(found, dict):
            raise _bad(f"the body is a JSON {type(found).__name__}, and an object is needed")
        return found

    def declined(self, error: Exception) -> tuple[int, Mapping[str, str]]:
        """Count an error that a request is answered with; return the status and headers."""
        said = told(error)
        self.metrics.declined.labels(str(said.status), said.kind).inc()
        return said.status, {"x-should-retry": "false"} if said.final else {}


def _bad(message: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.BAD_REQUEST, "BadRequestError", message)
