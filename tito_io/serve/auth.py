"""Who may ask, and which session a request is about.

A session's id is 128 random bits, and knowing it is the right to use that session: it may stand in the path,
in a header, or in the place of an API key, for agents whose base URL cannot carry a path. Where the gateway
has no keys, any other key or header names a session too, which the first turn opens; `/session` is where it
is looked at, by the same key and header.
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
    f"; this is no id: the session that the header {HEADER} or an API key names is at /session, by the same"
)
LONGEST = 256
"""The longest name or key that is looked at."""


def new_name() -> str:
    """Return a session id that nobody can guess."""
    return secrets.token_hex(16)


def same(one: str, other: str) -> bool:
    """Compare secrets in a time that tells nothing of them."""
    return hmac.compare_digest(one.encode(), other.encode())


def token_of(request: Request) -> str | None:
    """Return the key that a request brings, in the manner of either API."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    token = bearer.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
    return token[:LONGEST] or None


@attrs.frozen
class Named:
    """The session of a request."""

    name: str
    opens: bool
    """Whether the first request opens it."""


@attrs.frozen
class Keys:
    """The keys of a gateway; without any, whoever reaches it may use it."""

    keys: Sequence[str] = ()

    def admit(self, request: Request) -> None:
        """Let in who has a key; raises `RequestRefused`."""
        if self.keys and not self._known(token_of(request)):
            raise _unknown()

    def session(self, request: Request) -> Named:
        """Return the session that a request names; raises `RequestRefused` for no name or a forbidden one."""
        token, path = token_of(request), request.path_params.get("session")
        if path is not None:
            if self.keys and not self._known(token) and not same(token or "", path):
                raise _unknown()
            return _by_id(path)
        header = request.headers.get(HEADER)
        if header is not None:
            self.admit(request)
            return _named(header[:LONGEST], token or "")
        if token is not None and IDENTIFIER.fullmatch(token):
            return Named(token, opens=False)
        self.admit(request)
        if self.keys or token is None:
            raise RequestRefused(
                HTTPStatus.BAD_REQUEST,
                "NoSessionError",
                f"no session is named: use the base URL /sessions/ID/v1, the header {HEADER}, or the "
                "session's id as the API key; POST /sessions opens one",
            )
        return Named(derived("key", token), opens=True)

    def _known(self, token: str | None) -> bool:
        """Tell whether a key is one of ours, looking at each of them whichever it is."""
        return sum(same(token or "", key) for key in self.keys) > 0


def derived(kind: str, *secret: str) -> str:
    """Return the id of a session that is named by its user: as hard to guess as the name."""
    return hashlib.sha256("\0".join(("tito", kind, *secret)).encode()).hexdigest()[:32]


def _by_id(path: str) -> Named:
    if not IDENTIFIER.fullmatch(path):
        raise not_found(path, NO_ID)
    return Named(path, opens=False)


def _named(header: str, token: str) -> Named:
    if IDENTIFIER.fullmatch(header):
        return Named(header, opens=False)
    return Named(derived("header", token, header), opens=True)


def _unknown() -> RequestRefused:
    return RequestRefused(
        HTTPStatus.UNAUTHORIZED, "AuthenticationError", "the API key is none of this gateway's; pass another"
    )
