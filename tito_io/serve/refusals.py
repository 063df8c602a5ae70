"""What a gateway says no with: a status, a word that can be counted, and what to do about it.

No text of a conversation stands in a refusal, and a failure that nobody foresaw is told by its class alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import attrs

from tito_core import InputError, TemplateRefused, TitoError, TokenizeError
from tito_io.engines.protocol import (
    AbortedError,
    AuthenticationError,
    EngineError,
    InvalidReplyError,
    OverlongError,
    RequestError,
    ServerError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)

from .limits import MIB
from .redact import quoted
from .store import GoneError, StoreError


class RequestRefused(TitoError):  # noqa: N818  # it is an answer, and no failure of the gateway
    """A request that is answered with no."""

    def __init__(self, status: int, kind: str, message: str, *, final: bool = True) -> None:
        """Say no; `final` where asking again can change nothing, which client libraries then do not."""
        super().__init__(message)
        self.status, self.kind, self.final = status, kind, final


def not_found(name: str, hint: str = "") -> RequestRefused:
    """Return the refusal of a session that is not there; its first words are the session protocol's."""
    text = f"session not found: session_id={name:.64}{hint}"
    return RequestRefused(HTTPStatus.NOT_FOUND, "SessionNotFoundError", text)


def no_route(method: str, path: str, allowed: str = "") -> RequestRefused:
    """Return the refusal of what is no route, or is one for other methods: those that are `allowed`."""
    if allowed:
        text = f"{method} {path:.200}: this route takes {allowed}"
        return RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "MethodNotAllowedError", text)
    text = (
        f"{method} {path:.200}: there is no such route; the base URL is http://HOST:PORT/sessions/ID/v1 for "
        "OpenAI's clients, and the same without /v1 for Anthropic's"
    )
    return RequestRefused(HTTPStatus.NOT_FOUND, "NotFoundError", text)


def capped(what: str, found: int, most: int, option: str) -> RequestRefused:
    """Return the refusal of what is more than a cap allows."""
    text = f"{what}: {found}, and at most {most}; raise {option}"
    return RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "CapReachedError", text)


def too_long(most: int, said: int | None = None) -> RequestRefused:
    """Return the refusal of a body of more than so many bytes; `said` is its length, where that is known.

    >>> str(too_long(64 << 20, 70_000_000))
    'this body has 67 MiB, and at most 64 MiB are read; raise --max-body'
    """
    found = f"more than {_size(most)}" if said is None else _size(said, up=True)
    text = f"this body has {found}, and at most {_size(most)} are read; raise --max-body"
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "CapReachedError", text)


def _size(count: int, *, up: bool = False) -> str:
    """Return a number of bytes in whole MiB, rounded; small ones as they are."""
    return f"{count} bytes" if count < MIB else f"{(count + (MIB - 1) * up) // MIB} MiB"


@attrs.frozen
class ErrorReply:
    """An error as a client is told of it."""

    status: int
    kind: str
    message: str
    param: str | None = None
    final: bool = False


STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (OverlongError, 400),
    (UnsupportedError, 400),
    (AuthenticationError, 502),
    (TimedOutError, 504),
    (UnreachableError, 503),
    (InvalidReplyError, 502),
    (AbortedError, 502),
    (ServerError, 502),
    (TemplateRefused, 400),
    (TokenizeError, 502),
    (InputError, 400),
    (GoneError, 404),
    (StoreError, 503),
)
"""An error's status, the most particular class first. An outage is never the client's fault."""
OVERLONG = "prompt is too long, it exceeds the model's maximum context length"
"""Agents that shorten their history look for these words of their APIs."""
KEPT = "; its own words are in `answer.body`"
"""Where the library's errors keep what a client of the gateway cannot look into."""
PASSED_ON = frozenset((400, 404, 408, 413, 422, 429))
"""Statuses of an engine that speak of the request, and so are the client's to know."""


def told(error: Exception, said: Mapping[str, Any] | None = None) -> ErrorReply:
    """Return what a client is told of an error.

    An engine's own words go along where they are about the request, `said`, which is its author's to know;
    but for those that repeat what the conversation says: error texts end up in logs.
    """
    if isinstance(error, RequestRefused):
        return ErrorReply(error.status, error.kind, str(error), final=error.final)
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    if status is None and isinstance(error, RequestError):
        status = _engines(error)
    if status is None:
        return ErrorReply(
            500, "InternalError", f"the gateway failed ({type(error).__name__}); its log says where"
        )
    param = getattr(error, "field", None)
    text = str(error).removesuffix(KEPT) + quoted(error, said)
    words = f"{OVERLONG}: {text}" if isinstance(error, OverlongError) else text
    return ErrorReply(status, type(error).__name__, words, param if isinstance(param, str) else None)


def _engines(error: EngineError) -> int:
    answered = error.answer.status if error.answer is not None else 400
    return answered if answered in PASSED_ON else 502
