"""Check the API key of a request, and find its session.

A session's id is 128 random bits, and a client that has it may use that session. The id may stand in the
path, in a header, or in the place of an API key, for agents whose base URL cannot carry a path. A gateway
without keys lets any other key or header name a session too. The first turn opens that session, and
`/session` shows it for the same key or header. The id of a named session is computed with a secret of the
store, so that a well-known key such as `dummy` does not reveal it.
"""

from __future__ import annotations

import binascii
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
AGENT_HEADERS = {"x-claude-code-session-id": "", "session-id": "codex", "x-session-id": "opencode"}
"""Headers in which agents name a session of their own, and how their `user-agent` begins.

So do Claude Code 2.1, Codex 0.169 and opencode 1.18, with one value for all requests of a process. Other
programs mean other things by the latter two headers, and most agents send none.
"""
IDENTIFIER = re.compile(r"[0-9a-f]{32}")
NO_ID = (
    "; there is no such session. An id has 32 hexadecimal digits: POST /sessions returns one. For the "
    f"session that an API key or the header {HEADER} names, use /session with the same key and header"
)
WHERE_KEYS_STAND = (
    "A key is read from authorization: Bearer KEY, x-api-key or x-goog-api-key; none is read from the URL "
    "(?key=), which logs of proxies keep"
)
LONGEST = 256
"""How much of a name or key is read."""


def new_id() -> str:
    """Return a random session id."""
    return secrets.token_hex(16)


def new_secret() -> bytes:
    """Return a random secret for a store."""
    return secrets.token_bytes(32)


def derived_id(secret: bytes, kind: str, *names: str) -> str:
    """Return the id of a session that its user names; without the secret it cannot be computed."""
    return hmac.digest(secret, "\0".join(("tito", kind, *names)).encode(), hashlib.sha256).hex()[:32]


def same_secret(one: str, other: str) -> bool:
    """Compare secrets in a time that does not depend on them."""
    return hmac.compare_digest(one.encode(), other.encode())


def api_key_of(request: Request) -> str | None:
    """Return the API key of a request, as OpenAI's, Anthropic's or Google's clients send it."""
    headers = request.headers
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    alone = headers.get("x-api-key") or headers.get("x-goog-api-key", "")
    key = bearer.strip() if scheme.lower() == "bearer" else alone
    return key[:LONGEST] or None


def with_basic_key(request: Request) -> Request:
    """Return a request for a page, whose API key may be the password of HTTP Basic (RFC 7617).

    A person's browser sends no bearer token. It sends a password with every later request, also with one
    that another site's page makes; so only routes that read, and answer with a page, take it.
    """
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return request
    try:
        _, _, password = binascii.a2b_base64(encoded.strip(), strict_mode=True).partition(b":")
    except ValueError:
        return request
    others = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
    request.scope["headers"] = [*others, (b"authorization", b"Bearer " + password)]
    return Request(request.scope, request.receive)


@attrs.frozen(kw_only=True)
class RequestedSession:
    """The session of a request.

    Attributes:
        name: The session's id.
        opens: Whether the request opens the session where it does not exist.
        owner: Who asks: a digest of the gateway's key in the request. None if the session's own id was the
            key, or if the gateway has no keys; then any session may be used whose id is known.
        agent: A digest of the session that the agent names itself; None where it names none.
        own_name: The id of the agent's session if another agent opened `name`; None without `agent`.
        by_key: Whether an unknown key may be the id of the session: only one that exists admits the request.
    """

    name: str
    opens: bool = False
    owner: str | None = None
    agent: str | None = None
    own_name: str | None = None
    by_key: bool = False


@attrs.frozen
class ApiKeys:
    """The API keys of a gateway. Without any, every client may use it.

    Attributes:
        keys: The keys.
        shared: Whether all agents with the same API key share one session.
    """

    keys: Sequence[str] = ()
    shared: bool = False

    def admit(self, request: Request) -> None:
        """Accept a request with a key of this gateway; raises `RequestRefused`."""
        key = api_key_of(request)
        if self.keys and not self._known(key):
            raise unknown_key(sent=key is not None)

    def owner(self, request: Request, secret: bytes) -> str | None:
        """Return the owner of what a request opens; None for a gateway without keys."""
        return derived_id(secret, "owner", api_key_of(request) or "") if self.keys else None

    def session(self, request: Request, secret: bytes) -> RequestedSession:
        """Return the session that a request names; raises `RequestRefused` without a name or the right.

        Args:
            request: The request.
            secret: The store's secret.
        """
        key, named = api_key_of(request), request.path_params.get("session")
        if named is None and IDENTIFIER.fullmatch(request.headers.get(HEADER, "")):
            named = request.headers[HEADER]
        if named is not None:
            return self._by_id(request, named, secret)
        header = request.headers.get(HEADER) or None  # a shell's unset variable leaves an empty one
        if header is None and key is not None and IDENTIFIER.fullmatch(key) and not self._known(key):
            return RequestedSession(name=key, by_key=bool(self.keys))
        self.admit(request)
        if header is not None:
            name = derived_id(secret, "header", key or "", header[:LONGEST])
            return RequestedSession(name=name, opens=True, owner=self.owner(request, secret))
        if self.keys or key is None:
            raise _unnamed()
        return self._by_key(request, key, secret)

    def _by_id(self, request: Request, name: str, secret: bytes) -> RequestedSession:
        """Return the session of an id, which its own id or a key of the gateway gives access to."""
        key = api_key_of(request) or ""
        by_id = not self._known(key) and same_secret(key, name)
        if not by_id:
            self.admit(request)
        if not IDENTIFIER.fullmatch(name):
            raise not_found(name, NO_ID)
        return RequestedSession(name=name, owner=None if by_id else self.owner(request, secret))

    def _by_key(self, request: Request, key: str, secret: bytes) -> RequestedSession:
        name, agent = derived_id(secret, "key", key), None if self.shared else _agent(request)
        if agent is None:
            return RequestedSession(name=name, opens=True)
        return RequestedSession(
            name=name,
            opens=True,
            agent=derived_id(secret, "agent", agent),
            own_name=derived_id(secret, "key", key, agent),
        )

    def _known(self, key: str | None) -> bool:
        """Return whether a key is one of the gateway's. All are compared, so that time reveals nothing."""
        return sum(same_secret(key or "", one) for one in self.keys) > 0


def _agent(request: Request) -> str | None:
    """Return the session that an agent names itself."""
    program = request.headers.get("user-agent", "").lower()
    named = (request.headers.get(one) for one, who in AGENT_HEADERS.items() if program.startswith(who))
    return next((name[:LONGEST] for name in named if name), None)


def _unnamed() -> RequestRefused:
    return RequestRefused(
        HTTPStatus.BAD_REQUEST,
        "no_session",
        f"no session is named: use the base URL /sessions/ID/v1, the header {HEADER} with an id or a name of "
        f"your choice, or the session's id as the API key; POST /sessions opens one. {WHERE_KEYS_STAND}",
    )


def unknown_key(*, sent: bool = True) -> RequestRefused:
    """Return the error for a request without a key of the gateway; `sent` is whether it has any key."""
    why = "this gateway does not know the API key, and it is the id of no session; pass one of its keys"
    if not sent:
        why = "no API key was sent; send one of this gateway's keys, or the id of the session in its place"
    return RequestRefused(HTTPStatus.UNAUTHORIZED, "unknown_key", f"{why}. {WHERE_KEYS_STAND}")
