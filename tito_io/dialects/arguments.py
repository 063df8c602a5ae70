r"""Tool call arguments as an object, for APIs that have no text for them, and back.

What would not come back the same is passed as its text under one key of its own: malformed JSON, a key that
stands twice, NaN, numbers and characters that JSON readers change. The tool then sees that the call was
malformed, and what was sampled survives the echo.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from tito_core.normalization.canonical import normalize

from .protocol import UntranslatableError

RAW = "tito_raw_arguments"


def as_object(text: str) -> dict[str, Any]:
    """Return arguments as an object.

    >>> as_object('{"a": 1}'), as_object(""), as_object('{"a": ')
    ({'a': 1}, {}, {'tito_raw_arguments': '{"a": '})
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {RAW: text}
    return found if isinstance(found, dict) and RAW not in found and _survives(found, text) else {RAW: text}


def as_text(found: dict[str, Any], field: str) -> str:
    """Return the text of arguments that a client sends back; `field` names where they stand.

    >>> as_text({"a": 1}, "input"), as_text({"tito_raw_arguments": "no JSON"}, "input")
    ('{"a": 1}', 'no JSON')
    """
    raw = found.get(RAW)
    if len(found) == 1 and isinstance(raw, str):
        return raw
    try:
        return json.dumps(found, ensure_ascii=False)
    except RecursionError:
        raise UntranslatableError(field, "nests too deep", "flatten it") from None


def _survives(found: dict[str, Any], text: str) -> bool:
    """Tell whether a reader and a writer of JSON leave arguments the same."""
    try:
        again = orjson.loads(orjson.dumps(found))
        return normalize(_calling(json.dumps(again))) == normalize(_calling(text))
    except (TypeError, ValueError, RecursionError):
        return False


def _calling(arguments: str) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "", "function": {"name": "", "arguments": arguments}}]}
