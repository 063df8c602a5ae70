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
    """Return a value as plain data: dicts, lists, strings and numbers, ready for JSON.

    >>> from tito_core import Policy
    >>> to_data(Policy())
    {'truncated': 'close', 'odd_stop': 'refuse', 'forgive': []}
    """
    return _converter().unstructure(value)


def from_data(data: Any, kind: type[T]) -> T:
    """Return the value that plain data describe.

    Raises `InputError` that names each place where the data are wrong, unknown keys among them.

    >>> from tito_core import Policy
    >>> from_data({"odd_stop": "keep"}, Policy).odd_stop.name
    'KEEP'
    >>> from_data({"odd_stop": "kepe"}, Policy)
    Traceback (most recent call last):
    tito_core.errors.InputError: Policy.odd_stop: 'kepe' is none of refuse, replace, keep
    """
    try:
        return _converter().structure(data, kind)
    except BaseValidationError as error:
        raise InputError("; ".join(_complaints(error, kind.__name__))) from None
    except (TypeError, AttributeError, StructureHandlerNotFoundError) as error:
        raise InputError(f"{kind.__name__}: {error}") from None


def _complaints(error: BaseValidationError, path: str) -> list[str]:
    lines = transform_error(error, path=path, format_exception=_said)
    return [f"{place}: {said}" for said, _, place in (line.rpartition(" @ ") for line in lines)]


def _said(error: BaseException, _: type | None) -> str:
    if isinstance(error, KeyError):
        return f"the key {error.args[0]!r} is missing"
    if isinstance(error, ForbiddenExtraKeysError):
        return f"the keys {sorted(error.extra_fields)} are unknown"
    return str(error)


def _by_name(data: Any, kind: type[Enum]) -> Enum:
    found = kind.__members__.get(data.upper()) if isinstance(data, str) else None
    if found is None:
        names = ", ".join(name.lower() for name in kind.__members__)
        raise InputError(f"{data!r:.60} is none of {names}")
    return found


def _ledger(data: Any, _: type[Ledger]) -> Ledger:
    runs = [(_by_name(origin, Origin), count) for origin, count in data]
    if not all(type(count) is int and count >= 0 for _, count in runs):
        raise InputError("prompt_ledger counts must be whole numbers")
    return Ledger.of(runs)  # type: ignore[arg-type]  # by name, each is an Origin


def _runs(ledger: Ledger) -> list[list[object]]:
    return [[_name(span.origin), span.stop - span.start] for span in ledger.spans]


def _trajectory(data: Any, _: type[Trajectory]) -> Trajectory:
    return Trajectory(_converter().structure(data, list[Step]))


@cache
def _converter() -> Converter:
    """Build the converter, once it is needed: sequences as lists, enumerations by name, values by fields."""
    made = Converter(forbid_extra_keys=True)
    made.register_structure_hook(Ids, lambda data, _: Ids.of(data))
    made.register_unstructure_hook(Ids, Ids.tolist)
    made.register_structure_hook(Messages, lambda data, _: Messages.of(data))
    made.register_unstructure_hook(Messages, list)
    made.register_structure_hook(Ledger, _ledger)
    made.register_unstructure_hook(Ledger, _runs)
    made.register_structure_hook(Enum, _by_name)
    made.register_unstructure_hook(Enum, _name)
    made.register_structure_hook(tuple[float | None, ...] | None, lambda data, _: data)
    made.register_structure_hook(Trajectory, _trajectory)
    made.register_unstructure_hook(Trajectory, lambda value: [made.unstructure(step) for step in value])
    made.register_unstructure_hook_func(_is_forgiveness, lambda value: sorted(map(_name, value)))
    made.register_structure_hook_func(_is_ids, lambda data, _: checked(data, "ids"))
    for plain in (bool, int, str):
        made.register_structure_hook(plain, _plain)
    made.register_structure_hook(bytes, lambda data, _: _bytes(data))
    made.register_unstructure_hook(bytes, lambda data: binascii.b2a_base64(data, newline=False).decode())
    made.register_structure_hook_factory(attrs.has, lambda kind: _structure(kind, made))
    return made


def _structure(kind: type, made: Converter) -> Any:
    """Pass numbers and strings unchanged to fields that check them themselves.

    The converter would turn a string that spells a number into that number, and anything into a string.
    """
    plain: dict[str, Any] = {
        field.name: override(struct_hook=lambda data, _: data)
        for field in attrs.fields(kind)
        if kind.__annotations__.get(field.name) in PLAIN and (field.validator or field.converter)
    }
    return make_dict_structure_fn(kind, made, **plain)


def _plain(data: Any, kind: type) -> Any:
    """Take what is of a kind already: the converter would make a truth of the text "false"."""
    if type(data) is not kind:
        raise InputError(f"{data!r:.60} is no {kind.__name__}")
    return data


def _bytes(data: Any) -> bytes:
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except (binascii.Error, TypeError, ValueError):
        raise InputError("give bytes as a string of base64") from None


def _name(value: Enum) -> str:
    return value.name.lower()


def _is_forgiveness(kind: Any) -> bool:
    return bool(kind == frozenset[Forgiveness])


def _is_ids(kind: Any) -> bool:
    return bool(kind == tuple[int, ...])
