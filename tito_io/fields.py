"""Read typed fields of JSON objects: by name and type, with the path of a wrong one in the error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

import attrs

T = TypeVar("T")

KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (type(None), "null"),
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a string"),
    (Mapping, "an object"),
    ((list, tuple), "a list"),
)
"""Types and their names in JSON, subclasses first: True is an int."""


def json_kind(value: Any) -> str:
    """Return the JSON name of a `value`'s type; for other types, the Python name.

    >>> [json_kind(one) for one in (None, True, 1, "x", {}, [], {1})]
    ['null', 'true or false', 'a number', 'a string', 'an object', 'a list', 'set']
    """
    return next((name for kind, name in KINDS if isinstance(value, kind)), type(value).__name__)


def utf8_fault(text: bytes) -> str | None:
    r"""Return where a text is not UTF-8, counted from 1; None for UTF-8. JSON's readers do not say where.

    >>> utf8_fault(b'{"a": "\xff"}')
    'is not valid UTF-8 at byte 8'
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"is not valid UTF-8 at byte {error.start + 1}"
    return None


class FieldReader:
    """Reads typed values; a subclass words its errors (`missing`, `wrong_type`).

    A field that is null counts as missing. JSON's true is no number, though Python's is.
    """

    __slots__ = ()

    def get(self, holder: object, name: str, kind: type[T]) -> T:
        """Return the field `name` of type `kind` of the object `holder`, which must have it."""
        value = holder.get(name) if isinstance(holder, Mapping) else None
        return self._present(value, kind, name)

    def find(self, holder: object, name: str, kind: type[T]) -> T | None:
        """Return the field `name` of type `kind` of the object `holder`; None where it is missing."""
        value = holder.get(name) if isinstance(holder, Mapping) else None
        return None if value is None else self.typed(value, kind, name)

    def typed(self, value: object, kind: type[T], path: str) -> T:
        """Return `value` if it is of type `kind`; `path` names it in the error."""
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.wrong_type(path, kind, value)
        return value

    def _present(self, value: object, kind: type[T], path: str) -> T:
        if value is None:
            raise self.missing(path, kind)
        return self.typed(value, kind, path)

    def missing(self, path: str, kind: type) -> Exception:
        """Return the error for a missing field."""
        return self.wrong_type(path, kind, None)

    def wrong_type(self, path: str, kind: type, value: object) -> Exception:
        """Return the error for a field of another type."""
        raise NotImplementedError


@attrs.frozen
class Fields(FieldReader):
    """A JSON object and its place in a request.

    Attributes:
        values: The object itself.
        path: Where the object stands in the request, such as `tools[0]`; empty for the body.

    >>> Fields({"n": 2, "stop": None}).optional("n", int), Fields({"stop": None}).optional("stop", str)
    (2, None)
    """

    ITEM: ClassVar[str] = "[{}]"
    """How a path names an item of a list."""

    values: Mapping[str, Any]
    path: str = ""

    def optional(self, name: str, kind: type[T]) -> T | None:
        """Return the field `name` of type `kind`, or None where it is missing."""
        return None if self.values.get(name) is None else self.required(name, kind)

    def required(self, name: str, kind: type[T]) -> T:
        """Return the field `name` of type `kind`, which must be there."""
        return self._present(self.values.get(name), kind, self.at(name))

    def nested(self, name: str, *, required: bool = False) -> Self:
        """Return the object under `name`; an empty one where it is missing and not `required`."""
        values = self.required(name, dict) if required else self.optional(name, dict)
        return self.inner(values or {}, self.at(name))

    def nested_list(self, name: str, *, required: bool = False) -> list[Self]:
        """Return the list of objects under `name`; an empty one where it is missing and not `required`."""
        items = self.required(name, list) if required else self.optional(name, list)
        places = [(item, self.at(name) + self.ITEM.format(i)) for i, item in enumerate(items or [])]
        return [self.inner(self.typed(item, dict, place), place) for item, place in places]

    def inner(self, values: Mapping[str, Any], path: str) -> Self:
        """Return the reader of an object inside this one."""
        return type(self)(values, path)

    def at(self, name: str) -> str:
        """Return the path of the field `name`."""
        return f"{self.path}.{name}" if self.path else name
