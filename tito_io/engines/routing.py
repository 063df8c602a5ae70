"""Name a turn's conversation and request to routers: HTTP headers that other servers ignore.

A router in front of several workers keeps a conversation on the worker that has its ids cached if each
request names it. Every router reads a header of its own, so the name goes out under all of them:

- `X-Session-Id`: vLLM's router (`src/policies/hash_key.rs`) and Dynamo (`protocols/agents.rs`)
- `X-SMG-Routing-Key`: SGLang's router (`policies/consistent_hashing.rs`, `manual.rs`)
- `X-Dynamo-Session-Id`: Dynamo, before any other name (`protocols/agents.rs`)

`X-Request-Id` and `X-Dynamo-Request-Id` name one request, so that logs can be joined. Dynamo takes only a
UUID there. vLLM's router hashes `X-Request-Id` where no session is named.

An answer may name the worker in turn: SMG, which SGLang's router became, by `X-SMG-Routed-Worker-Id`
(`docs/concepts/routing/sticky-sessions.md`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from hashlib import sha256

from tito_core import InputError

SESSION_HEADERS = ("X-Session-Id", "X-SMG-Routing-Key", "X-Dynamo-Session-Id")
REQUEST_HEADERS = ("X-Request-Id", "X-Dynamo-Request-Id")
WORKER_HEADER = "x-smg-routed-worker-id"
LONGEST_WORKER = 256
"""How many characters of a worker's name are kept."""

PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""Names that every router takes as they are; Dynamo refuses other characters in some of its headers."""


def new_request_id() -> str:
    """Return a new id: a random UUID, the one form in which all routers take that of a request.

    It names a conversation as well.
    """
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
    headers, name = dict.fromkeys(REQUEST_HEADERS, request_id), routing_name(conversation)
    return headers if name is None else {**headers, **dict.fromkeys(SESSION_HEADERS, name)}


def routing_name(conversation: str | None) -> str | None:
    """Return a conversation's name as routers get it; None for one without a name.

    Raises:
        InputError: `conversation` is not a text, or empty.

    >>> routing_name("game-7"), routing_name("game 7")
    ('game-7', 'fed76aa40951ad258410971729c0faaf')
    """
    check_conversation(conversation)
    if conversation is None or PLAIN.fullmatch(conversation):
        return conversation
    return digest_name(conversation)


def named_worker(headers: Mapping[str, str]) -> str | None:
    """Return the worker that the headers of an answer name, in small letters; None where they name none.

    >>> named_worker({"x-smg-routed-worker-id": "http://w2:8000"}), named_worker({})
    ('http://w2:8000', None)
    """
    return headers.get(WORKER_HEADER, "")[:LONGEST_WORKER] or None
