"""Thoughts as `reasoning` items, and back.

`encrypted_content` is for clients that keep that and nothing else of an item. It is the text in base64, and a
mark that says so; what somebody else encrypted cannot be read here.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from tito_io.dialects.fields import demanded, known, objects, taken
from tito_io.dialects.protocol import UntranslatableError

OURS = "tito:"


def item(identifier: str, text: str, *, sealed: bool) -> dict[str, Any]:
    """Return the item of a thought.

    >>> item("rs_1", "hm", sealed=True)["encrypted_content"]
    'tito:aG0='
    """
    plain = {"id": identifier, "type": "reasoning", "summary": [], "status": "completed"}
    return {**plain, "content": [part(text)], "encrypted_content": _sealed(text) if sealed else None}


def part(text: str) -> dict[str, Any]:
    """Return the part of a text."""
    return {"type": "reasoning_text", "text": text}


def text_of(found: Mapping[str, Any], field: str) -> str:
    """Return the thought of an item, the empty string where it says nothing."""
    known(found, ("type", "id", "summary", "content", "encrypted_content", "status"), f"{field}.")
    parts = objects(found.get("content") or [], f"{field}.content")
    if parts:
        return "".join(_part(part, f"{field}.content[{place}]") for place, part in enumerate(parts))
    sealed = taken(found, "encrypted_content", str, f"{field}.")
    if sealed is not None:
        return _opened(sealed, f"{field}.encrypted_content")
    if found.get("summary"):
        raise UntranslatableError(
            f"{field}.summary", "is not the thought itself", "send its content, or no item"
        )
    return ""


def _part(part: Mapping[str, Any], field: str) -> str:
    if part.get("type") not in ("reasoning_text", "text"):
        raise UntranslatableError(f"{field}.type", "is no text of a thought", "use reasoning_text")
    return demanded(part, "text", str, f"{field}.")


def _sealed(text: str) -> str:
    return OURS + b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _opened(sealed: str, field: str) -> str:
    mark, ours, text = sealed.partition(OURS)
    try:
        return b64decode(text if ours and not mark else "!", validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        raise UntranslatableError(field, "was not made here", "send the content, or no item") from None
