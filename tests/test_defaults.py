"""A default is of the type that its field has."""

from __future__ import annotations

import types
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import pytest

from tests.faults.fault import ROOT

ROOMS = ("tito_core", "tito_io/samples", "tito_io/serve")


def classes() -> Iterator[type]:
    """Yield the classes of values."""
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("[a-z]*.py"))):
        if path.stem != "ray" and "testing" not in path.parts:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = import_module(name)
            made = [one for one in vars(module).values() if isinstance(one, type) and attrs.has(one)]
            yield from (one for one in made if one.__module__ == name)


def fits(value: object, kind: Any) -> bool:
    """Return whether a value is of a type, as far as that can be seen from outside."""
    if kind is Any:
        return True
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in get_args(kind))
    kind = origin or kind
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return value is not None and value != ""  # a type that is known by what it does
    return isinstance(value, kind) and (type(value) is bool) <= (kind is bool)


@pytest.mark.parametrize("kind", sorted(set(classes()), key=str), ids=str)
def test_defaults_are_of_their_type(kind: type) -> None:
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError):  # Python knows no arrays of a type
        hints = dict.fromkeys(attrs.fields_dict(kind), Any)
    for field in attrs.fields(kind):
        if field.default is not attrs.NOTHING and not isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # a class
            assert fits(field.default, hints[field.name]), field
