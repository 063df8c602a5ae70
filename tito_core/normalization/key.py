"""Keys of renderings: what a prompt was rendered with besides its messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import require, short_repr
from ..errors import InputError
from ..message import copied


def render_key(
    tools: Sequence[Mapping[str, Any]] | None = None, template_args: Mapping[str, Any] | None = None
) -> str:
    """Return a key of `tools` and `template_args`: steps rendered with another key never match.

    The order of keys inside a tool counts, because templates print it. Raises `InputError` for anything
    that is not JSON data.

    >>> render_key() == render_key([], {})
    True
    >>> render_key(template_args={"thinking": True}) == render_key(template_args={"thinking": 1})
    False
    """
    given: object = [] if tools is None else tools
    args = {} if template_args is None else template_args
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise InputError(f"tools is {short_repr(given)}: give a list of tools, or None")
    require(args, Mapping, "template_args", "an object, or None")
    (data,) = copied([{"role": "key", "tools": list(given), "args": dict(args)}], "tools or template_args")
    args = data["args"]
    try:
        return json.dumps([data["tools"], {name: args[name] for name in sorted(args)}], separators=(",", ":"))
    except ValueError:  # JSON data nest no deeper than `copied` allows, and hold nothing else
        raise InputError("tools or template_args hold a number of thousands of digits: give text") from None
