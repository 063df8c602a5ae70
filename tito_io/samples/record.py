"""What a line holds, before anybody knows of which form it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tito_core import InputError
from tito_io.samples.forms.form import named

from .forms import Record
from .lines import FileLine
from .problem import without_id

NOUNS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class NoIdError(InputError):
    """A line has no id where ids were to be."""


def record_of(line: FileLine) -> dict[str, Any] | str:
    """Return a line's object, or why it has none."""
    try:
        found = orjson.loads(line.text)
    except orjson.JSONDecodeError as error:
        return f"is no JSON: {error}"
    return found if isinstance(found, dict) else f"is {noun_of(found)}: give an object a line"


def noun_of(found: object) -> str:
    """Return what JSON calls a value, with its article.

    >>> noun_of(9), noun_of([]), noun_of(None), noun_of(True)
    ('a number', 'a list', 'null', 'a boolean')
    """
    return NOUNS.get(type(found), "something else")


def keys_of(record: Record) -> str:
    """Return an object's keys, to be shown."""
    shown = ", ".join(f"`{key:.20}`" for key in sorted(record)[:8])
    return f"its keys are {shown}" if shown else "it has no keys"


def id_at(record: Record, field: str) -> str:
    """Return the id at the end of a path of names with dots between; raises `NoIdError` for none.

    >>> id_at({"meta": {"session": 7}}, "meta.session")
    '7'
    """
    *path, last = field.split(".")
    holder: object = record
    for name in path:
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    found = named(holder, last) if isinstance(holder, Mapping) else None
    if found is None:
        raise NoIdError(without_id(field))
    return found
