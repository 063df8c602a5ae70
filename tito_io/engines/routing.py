"""Name a turn's conversation and request to routers: HTTP headers that other servers ignore.

A router in front of several workers keeps a conversation on the worker that has its ids cached if each
request names it. Every router reads a header of its own, so the name goes out under all of them:

- `X-Session-Id`: vLLM's router (`src/policies/hash_key.rs`) and Dynamo (`protocols/agents.rs`)
- `X-SMG-Routing-Key`: SGLang's router (`policies/consistent_hashing.rs`, `manual.rs`)
- `X-Dynamo-Session-Id`: Dynamo, before any other name (`protocols/agents.rs`)

`X-Request-Id` and `X-Dynamo-Request-Id` name one request, so that logs can be joined. Dynamo takes only a
UUID there. vLLM's router hashes `X-Request-Id` where no session is named.
"""

from __future__ import annotations

import re
import uuid
from hashlib import sha256

from tito_core import InputError

SESSION_HEADERS = ("X-Session-Id", "X-SMG-Routing-Key", "X-Dynamo-Session-Id")
REQUEST_HEADERS = ("X-Request-Id", "X-Dynamo-Request-Id")

PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""Names that every router takes as they are; Dynamo refuses other characters in some of its headers."""


def new_request_id() -> str:
    """Return the id of a new request: a random UUID, the one form that all routers take."""
    return str(uuid.uuid4())


def digest_name(name: str) -> str:
    """Return a name that does not reveal `name`: 32 hexadecimal digits of its SHA-256.

    >>> digest_name("my session")
    'b405683d0bb5b3dc4396735ded247b1a'
    """
    return sha256(name.encode()).hexdigest()[:32]


def check_conversation(name: object) -> None:
    """Raise `InputError` for a name of a conversation that is not a text, or is empty."""
    if name is not None and not (isinstance(name, str) and name):
        raise InputError(f"conversation is {name!r:.60}: pass a text that is not empty, or None")


def routing_headers(conversation: str | None, request_id: str) -> dict[str, str]:
    """Return the headers that name a request, and its conversation if that has a name.

    A name with other characters than letters, digits, `.`, `_` and `-`, or of more than 128, is replaced by
    its digest.

    Raises:
        InputError: `conversation` is not a text, or empty.

    >>> routing_headers("game-7", "1b4e28ba")["X-SMG-Routing-Key"]
    'game-7'
    >>> sorted(routing_headers(None, "1b4e28ba"))
    ['X-Dynamo-Request-Id', 'X-Request-Id']
    """
    check_conversation(conversation)
    headers = dict.fromkeys(REQUEST_HEADERS, request_id)
    if conversation is None:
        return headers
    name = conversation if PLAIN.fullmatch(conversation) else digest_name(conversation)
    return {**headers, **dict.fromkeys(SESSION_HEADERS, name)}
