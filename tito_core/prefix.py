"""Hashes of message prefixes, for histories in which many steps nearly match.

The hash is blind to every difference that any policy can forgive, so an unlike hash proves that two
prefixes differ; a like hash proves nothing and is followed by a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from .message import Messages
from .normal import normal_copy, trimmed

EMPTY = 0


def prefix_hashes(messages: Iterable[dict[str, Any]]) -> list[int]:
    """Return the hash of every prefix of `messages`, the empty one first."""
    return list(accumulate(map(_loose, messages), _fold, initial=EMPTY))


def chain_hash(messages: Messages) -> int:
    """Return the hash of all of `messages`, remembered along the chain that they share."""
    missing: list[Messages] = []
    for link in messages.links():
        if link.memo is not None:
            break
        missing.append(link)
    shared = missing[-1].older if missing else messages
    known = shared.memo if shared is not None and shared.memo is not None else EMPTY
    for link in reversed(missing):
        for message in link.part:
            known = _fold(known, _loose(message))
        object.__setattr__(link, "memo", known)  # nobody can tell: it says what could be told before
    return known


def _fold(known: int, added: int) -> int:
    return hash((known, added))


def _loose(message: dict[str, Any]) -> int:
    form = normal_copy(message)
    calls = tuple((call.name, call.arguments) for call in form.tool_calls)
    reasoning = None if form.role == "assistant" else form.reasoning
    return hash((form.role, trimmed(form), reasoning, calls, form.name))
