"""Read the fields of a request whose names may be in either of protobuf's two forms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

import attrs

from tito_io.dialects.fields import RequestFields


def camel(name: str) -> str:
    """Return a name as protobuf writes it in JSON.

    >>> camel("system_instruction"), camel("topP")
    ('systemInstruction', 'topP')
    """
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


@attrs.frozen
class GoogleFields(RequestFields):
    """A request's body or an object in it, with names such as `systemInstruction`.

    >>> GoogleFields.of_body({"system_instruction": {"parts": []}}, ()).nested("systemInstruction").values
    {'parts': []}
    """

    spelled: Mapping[str, str] = attrs.field(factory=dict, kw_only=True, repr=False)
    """What the client wrote for the names, for errors."""

    @classmethod
    def of_body(cls, body: object, ignoring: Collection[str], *, strict: bool = False) -> Self:
        """Return a body without its nulls and the fields to ignore."""
        given = body if isinstance(body, Mapping) else {}
        read = super().of_body(_named(given) if given else body, ignoring, strict=strict)
        return attrs.evolve(read, spelled=_spelled(given))

    def inner(self, values: Mapping[str, Any], path: str) -> Self:
        """Return the reader of an object inside this one."""
        return attrs.evolve(super().inner(_named(values), path), spelled=_spelled(values))

    def at(self, name: str) -> str:
        """Return the path of the field `name`, as the client wrote it."""
        return super().at(self.spelled.get(name, name))


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {camel(name): value for name, value in values.items()}


def _spelled(values: Mapping[str, Any]) -> dict[str, str]:
    return {camel(name): name for name in values}
