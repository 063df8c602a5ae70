"""How much a gateway takes. Every cap is told by name where it is reached, and none cuts anything off."""

from __future__ import annotations

import attrs

MIB = 1 << 20


@attrs.frozen(kw_only=True)
class Caps:
    """What one gateway, one session and one request may use."""

    body_bytes: int = 64 * MIB
    """The longest request body: a chat repeats its whole history, at about four bytes an id."""
    header_bytes: int = 32_768
    """The longest headers together; a session's name and a key are all that is read of them."""
    turns: int = 4_096
    """The most assistant messages in one prompt."""
    nodes: int = 16_384
    """The most committed turns of a session, those of all its branches."""
    tokens: int = 16_000_000
    """The most ids that a session holds, each shared one counted once."""
    sessions: int = 100_000
    """The most sessions in the store."""
    idle_seconds: float = 86_400.0
    """How long a session lives that nobody uses."""
    loaded_seconds: float = 600.0
    """How long a session that nobody uses stays in memory; the store has it still."""
    calls: int = 256
    """The most turns that are sampled at once; others wait."""
