"""What a prompt was rendered with, as a key: other tools or template arguments make other ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from .errors import InputError
from .message import copied

T = TypeVar("T")


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
    tools = () if tools is None else _checked(tools, Sequence, "tools", "a list of tools")
    args = {} if template_args is None else _checked(template_args, Mapping, "template_args", "an object")
    (data,) = copied([{"role": "key", "tools": list(tools), "args": dict(args)}], "tools")
    args = data["args"]
    return json.dumps([data["tools"], {name: args[name] for name in sorted(args)}], separators=(",", ":"))


def _checked(value: T, kind: type, name: str, words: str) -> T:
    if not isinstance(value, kind) or isinstance(value, str | bytes):
        raise InputError(f"{name} is {value!r:.60}: give {words}, or None")
    return value
