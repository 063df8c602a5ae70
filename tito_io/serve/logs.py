"""Logging to stderr: a line per turn, per failure, and per request if the access log is on.

No line holds message text or an API key. A session's id is a key to that session, so that lines show its
first 8 characters only.
"""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any
from urllib.parse import quote

import attrs
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tito_io.cli.errors import visible
from tito_io.engines.protocol import Reply

from .auth import IDENTIFIER
from .commit import TurnOrigin

LOG = logging.getLogger("tito.serve")
ACCESS = logging.getLogger("tito.access")
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SESSION = "tito.session"
"""Where a request's scope holds the id of its session."""
LONGEST_SEGMENT = 24
"""A longer part of a path is not one of a route, and may be a key."""


def _not_upgrade(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's lines about websockets, which the gateway answers with 426."""
    return not record.getMessage().startswith(
        ("Unsupported upgrade request", "No supported WebSocket library")
    )


class _OneLine(logging.Formatter):
    """Escapes control characters, which could change a terminal, and indents tracebacks.

    So nothing that a client sends can look like a line of the log.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802  # likewise
        return "\n".join(f"  {visible(line)}" for line in super().formatException(ei).split("\n"))


def configure_logs(level: str, *, access: bool) -> None:
    """Log to stderr from a `level` on, libraries too; with `access`, log each request whatever the level."""
    handler = logging.StreamHandler()
    handler.addFilter(_not_upgrade)
    handler.setFormatter(_OneLine(FORMAT))
    for name in ("tito", "uvicorn", "opentelemetry"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level.upper())
    ACCESS.setLevel(logging.INFO if access else logging.CRITICAL)


def short_id(session: str) -> str:
    """Return what a log shows of a session's id.

    >>> short_id("0123456789abcdef0123456789abcdef")
    '01234567'
    """
    return session[:8] if IDENTIFIER.fullmatch(session) else "..."


def short_path(path: str) -> str:
    r"""Return a path without ids and keys.

    >>> short_path("/sessions/0123456789abcdef0123456789abcdef/v1/models")
    '/sessions/01234567/v1/models'
    >>> short_path("/sessions/sk-123/a b\n")
    '/sessions/.../a%20b%0A'
    """
    parts = path.split("/")
    for place, part in enumerate(parts):
        if (place and parts[place - 1] == "sessions") or len(part) > LONGEST_SEGMENT:
            parts[place] = short_id(part)
    return quote("/".join(parts), safe="/")[:200]


@attrs.frozen
class AccessLog:
    """Logs a line per request around an application: method, path, status, milliseconds, session.

    Attributes:
        app: The application.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; a request whose client went away before the answer has the status `-`."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, start = "-", time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            session = scope.get(SESSION)
            ACCESS.info(
                "%s %s %s %.0f ms session %s",
                scope["method"],
                short_path(scope["path"]),
                status,
                (time.perf_counter() - start) * 1e3,
                "-" if session is None else short_id(session),
            )


def log_turn(session: str, origin: TurnOrigin, reply: Reply, end: str, begun: float) -> None:
    """Log a turn: how its prompt was sent and why, its ids, and the milliseconds since `begun`."""
    prompt = len(reply.prompt_ids)
    LOG.info(
        "session %s: turn %s, %s%s, prompt ids: %d (%d new, %s cached), sampled ids: %d, %.0f ms, "
        "forgiven: %s, engine's request: %s, worker: %s",
        short_id(session),
        end,
        origin.route,
        "" if origin.refusal is None else f" ({origin.refusal})",
        prompt,
        prompt - origin.expected,
        "?" if origin.cached is None else origin.cached,
        reply.usage.completion_tokens,
        (time.perf_counter() - begun) * 1e3,
        ", ".join(origin.forgiven) or "-",
        origin.engine_request or "-",
        origin.worker or "-",
    )


def log_error(error: Exception, status: int, session: str) -> None:
    """Log a failed turn by its class, without its words, which may repeat what a client sent."""
    frames = traceback.extract_tb(error.__traceback__) if status == 500 else []  # noqa: PLR2004  # not foreseen
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    failed = status >= 500  # noqa: PLR2004  # the gateway's or the engine's fault
    level = logging.ERROR if failed else logging.INFO
    LOG.log(level, "session %s: %s %s%s", short_id(session), status, type(error).__name__, place)
