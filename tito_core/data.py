"""Convert frozen values to plain JSON data and back. The only module that imports `cattrs`.

It handles any value of this package: a step, a policy, a trajectory, a profile, and the calls, routed experts
and options of `tito_core.samples`.
"""

from __future__ import annotations

import binascii
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import attrs
from cattrs import Converter, transform_error
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError, StructureHandlerNotFoundError
from cattrs.gen import make_dict_structure_fn, override

from .errors import InputError
from .ids import Ids, checked
from .ledger import Ledger, Origin
from .message import Messages
from .normalization.receipts import Forgiveness
from .step import Step
from .trajectory import Trajectory

T = TypeVar("T")

PLAIN = ("str", "int", "str | None", "int | None", "float | None", "Mapping[str, Any]")
"""Types, as they are written, of fields that check what they are given."""


def to_data(value: object) -> Any:
    """Return `value` as plain data: dicts, lists, strings and numbers, ready for JSON.

    >>> from tito_core import Policy
    >>> to_data(Policy())
    {'truncated': 'close', 'odd_stop': 'refuse', 'forgive': []}
    """
    return _converter().unstructure(value)


def from_data(data: Any, kind: type[T]) -> T:
    """Return the value of class `kind` that plain `data` describe.

    Raises `InputError` that names every place where the data are wrong, including unknown keys.

    >>> from tito_core import Policy
    >>> from_data({"odd_stop": "keep"}, Policy).odd_stop.name
    'KEEP'
    >>> from_data({"odd_stop": "kepe"}, Policy)
    Traceback (most recent call last):
    tito_core.errors.InputError: Policy.odd_stop: 'kepe' is not one of refuse, replace, keep
    """
    try:
        return _converter().structure(data, kind)
    except BaseValidationError as error:
        raise InputError("; ".join(_complaints(error, kind.__name__))) from None
    except (TypeError, AttributeError, StructureHandlerNotFoundError) as error:
        raise InputError(f"{kind.__name__}: {error}") from None


def _complaints(error: BaseValidationError, path: str) -> list[str]:
    lines = transform_error(error, path=path, format_exception=_complaint)
    return [f"{place}: {text}" for text, _, place in (line.rpartition(" @ ") for line in lines)]


def _complaint(error: BaseException, _: type | None) -> str:
    if isinstance(error, KeyError):
        return f"the key {error.args[0]!r} is missing"
    if isinstance(error, ForbiddenExtraKeysError):
        return f"the keys {sorted(error.extra_fields)} are unknown"
    return str(error)


@cache
def _converter() -> Converter:
    """Build the converter at first use: sequences as lists, enumerations by name, values by fields."""
    converter = Converter(forbid_extra_keys=True)
    read, write = converter.register_structure_hook, converter.register_unstructure_hook
    read(Ids, lambda data, _: Ids.of(data))
    write(Ids, Ids.tolist)
    read(Messages, lambda data, _: Messages.of(data))
    write(Messages, list)
    read(Ledger, _ledger)
    write(Ledger, lambda ledger: [[_name(span.origin), span.stop - span.start] for span in ledger.spans])
    read(Enum, _by_name)
    write(Enum, _name)
    read(tuple[float | None, ...] | None, lambda data, _: data)
    read(Trajectory, lambda data, _: Trajectory(converter.structure(data, list[Step])))
    write(Trajectory, lambda steps: [converter.unstructure(step) for step in steps])
    converter.register_unstructure_hook_func(
        lambda kind: bool(kind == frozenset[Forgiveness]), lambda names: sorted(map(_name, names))
    )
    converter.register_structure_hook_func(
        lambda kind: bool(kind == tuple[int, ...]), lambda data, _: checked(data, "ids")
    )
    for plain in (bool, int, str):
        read(plain, _plain)
    read(bytes, lambda data, _: _bytes(data))
    write(bytes, lambda data: binascii.b2a_base64(data, newline=False).decode())
    converter.register_structure_hook_factory(attrs.has, lambda kind: _structure(kind, converter))
    return converter


def _structure(kind: type, converter: Converter) -> Any:
    """Pass numbers and strings unchanged to fields that check them themselves.

    The converter would turn a string that spells a number into that number, and anything into a string.
    """
    unchanged: dict[str, Any] = {
        field.name: override(struct_hook=lambda data, _: data)
        for field in attrs.fields(kind)
        if kind.__annotations__.get(field.name) in PLAIN and (field.validator or field.converter)
    }
    return make_dict_structure_fn(kind, converter, **unchanged)


def _plain(data: Any, kind: type) -> Any:
    """Accept only what has the type already: the converter would read the text "false" as True."""
    if type(data) is not kind:
        raise InputError(f"{data!r:.60} is not of type {kind.__name__}")
    return data


def _bytes(data: Any) -> bytes:
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, TypeError, ValueError):
        raise InputError("give bytes as a string of base64") from None


def _name(value: Enum) -> str:
    return value.name.lower()


def _by_name(data: Any, kind: type[Enum]) -> Enum:
    member = kind.__members__.get(data.upper()) if isinstance(data, str) else None
    if member is None:
        names = ", ".join(name.lower() for name in kind.__members__)
        raise InputError(f"{data!r:.60} is not one of {names}")
    return member


def _ledger(data: Any, _: type[Ledger]) -> Ledger:
    runs = [(_by_name(origin, Origin), count) for origin, count in data]
    if not all(type(count) is int and count >= 0 for _, count in runs):
        raise InputError("prompt_ledger counts must be whole numbers")
    return Ledger.of(runs)  # type: ignore[arg-type]  # _by_name returns a member of the given enumeration
