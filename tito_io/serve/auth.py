"""API keys, and which session a request is about.

A session's id is 128 random bits, and a client that has it may use that session. The id may stand in the
path, in a header, or in the place of an API key, for agents whose base URL cannot carry a path. A gateway
without keys lets any other key or header name a session too. The first turn opens that session, and
`/session` shows it for the same key or header.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from http import HTTPStatus

import attrs
from starlette.requests import Request

from .refusals import RequestRefused, not_found

HEADER = "x-tito-session"
IDENTIFIER = re.compile(r"[0-9a-f]{32}")
NO_ID = (
    "; there is no such session. An id has 32 hexadecimal digits: POST /sessions returns one. For the "
    f"session that an API key or the header {HEADER} names, use /session with the same key and header"
)
LONGEST = 256
"""How much of a name or key is read."""


def new_id() -> str:
    """Return a random session id."""
    return secrets.token_hex(16)


def derived_id(kind: str, *secret: str) -> str:
    """Return the id of a session that its user names; it is as hard to guess as the name."""
    return hashlib.sha256("\0".join(("tito", kind, *secret)).encode()).hexdigest()[:32]


def same_secret(one: str, other: str) -> bool:
    """Compare secrets in a time that does not depend on them."""
    return hmac.compare_digest(one.encode(), other.encode())


def api_key_of(request: Request) -> str | None:
    """Return the API key of a request, as OpenAI's or Anthropic's clients send it."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    key = bearer.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    return key[:LONGEST] or None


@attrs.frozen
class RequestedSession:
    """The session of a request.

    Attributes:
        name: The session's id.
        opens: Whether the request opens the session where it does not exist.
    """

    name: str
    opens: bool = False


@attrs.frozen
class ApiKeys:
    """The API keys of a gateway. Without any, every client may use it.

    Attributes:
        keys: The keys.
    """

    keys: Sequence[str] = ()

    def admit(self, request: Request) -> None:
        """Accept a request with a key of this gateway; raises `RequestRefused`."""
        if self.keys and not self._known(api_key_of(request)):
            raise _unknown_key()

    def session(self, request: Request) -> RequestedSession:
        """Return the session that a request names; raises `RequestRefused` without a name or the right."""
        key, path = api_key_of(request), request.path_params.get("session")
        if path is not None:
            if self.keys and not self._known(key) and not same_secret(key or "", path):
                raise _unknown_key()
            if not IDENTIFIER.fullmatch(path):
                raise not_found(path, NO_ID)
            return RequestedSession(path)
        header = request.headers.get(HEADER)
        if header is None and key is not None and IDENTIFIER.fullmatch(key):
            return RequestedSession(key)
        self.admit(request)
        if header is not None:
            if IDENTIFIER.fullmatch(header):
                return RequestedSession(header)
            return RequestedSession(derived_id("header", key or "", header[:LONGEST]), opens=True)
        if self.keys or key is None:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST,
                "NoSessionError",
                f"no session is named: use the base URL /sessions/ID/v1, the header {HEADER}, or the "
                "session's id as the API key; POST /sessions opens one",
            )
        return RequestedSession(derived_id("key", key), opens=True)

    def _known(self, key: str | None) -> bool:
        """Return whether a key is one of the gateway's. All are compared, so that time reveals nothing."""
        return sum(same_secret(key or "", one) for one in self.keys) > 0


def _unknown_key() -> RequestRefused:
    return RequestRefused(
        HTTPStatus.UNAUTHORIZED,
        "AuthenticationError",
        "this gateway does not know the API key; pass one of its keys",
    )
