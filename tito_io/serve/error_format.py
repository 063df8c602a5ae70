"""In whose words an error is told: its client's, which reads it from where its API has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from tito_io.dialects import Anthropic, Chat, Dialect

from .refusals import ErrorReply

ANTHROPIC = "anthropic-version"
"""What each request of Anthropic's clients says, wherever it goes."""


def manner(request: Request) -> Dialect:
    """Return the API of whoever asks: Anthropic's, or OpenAI's, whose two APIs have errors alike."""
    asks = ANTHROPIC in request.headers or "/messages" in request.url.path
    return Anthropic() if asks else Chat()


def error_body(said: ErrorReply, dialect: Dialect | None) -> Mapping[str, Any]:
    """Return an error's body: in its dialect, or `{"error": text}` for a session's own routes.

    The session protocol has the latter on chats too, but those who chat have OpenAI's clients, which read no
    text there; its own clients read a session's routes, and of a chat the status alone.
    """
    if dialect is None:
        return {"error": said.message}
    return dialect.error(said.status, said.kind, said.message, param=said.param)
