r"""Server-sent events: JSON on one line, named where the API names its events.

Text from a model may hold half a surrogate pair, which UTF-8 cannot: JSON's escapes can.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
COMMENT = b": ping\n\n"
"""Keeps a connection alive; every client skips it."""


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    r"""Return one event.

    >>> event({"type": "ping"}, "ping")
    b'event: ping\ndata: {"type":"ping"}\n\n'
    >>> event({"text": "\ud83d"})
    b'data: {"text": "\\ud83d"}\n\n'
    """
    head = f"event: {name}\n".encode() if name else b""
    return b"%sdata: %s\n\n" % (head, dumps(data))


def dumps(data: Mapping[str, Any]) -> bytes:
    """Return JSON, of whole bodies too."""
    try:
        return orjson.dumps(data)
    except TypeError:
        return json.dumps(data).encode()
