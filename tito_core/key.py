"""What a prompt was rendered with, as a key: other tools or template arguments make other ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .message import copied


def render_key(
    tools: Sequence[Mapping[str, Any]] | None = None, template_args: Mapping[str, Any] | None = None
) -> str:
    """Return the key of a rendering; the order of keys is kept, since templates print it.

    Raises `InputError` for what is not JSON data.

    >>> render_key() == render_key([], {})
    True
    >>> render_key(template_args={"thinking": True}) == render_key(template_args={"thinking": 1})
    False
    """
    data = copied([{"role": "key", "tools": list(tools or ()), "args": dict(template_args or {})}], "tools")
    args = data[0]["args"]
    return json.dumps([data[0]["tools"], {name: args[name] for name in sorted(args)}], separators=(",", ":"))
