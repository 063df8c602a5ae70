"""Convert frozen values to plain JSON data and back. The only module that imports `cattrs`.

It handles any value of this package: a step, a policy, a trajectory, a profile, and the calls, routed experts
and options of `tito_core.samples`.
"""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import attrs
from cattrs import Converter, transform_error
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError, StructureHandlerNotFoundError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from .delta import StepDelta, deltas, joined
from .errors import InputError
from .ids import Ids, checked
from .ledger import Ledger, Origin
from .media.ranges import Media, MediaRange
from .message import Messages
from .normalization.receipts import Forgiveness
from .sampling_mask import SamplingMask
from .step import Step
from .trajectory import Trajectory

T = TypeVar("T")

PLAIN = ("str", "int", "str | None", "int | None", "float | None", "Mapping[str, Any]")
"""Types, as they are written, of fields that check what they are given."""


def to_data(value: object) -> Any:
    """Return `value` as plain data: dicts, lists, strings and numbers, ready for JSON.

    The data of a `Trajectory` hold what each step adds to earlier ones, and checksums that `from_data`
    compares. Make `[to_data(step) for step in trajectory]` where each step must stand alone.

    >>> from tito_core import Policy
    >>> to_data(Policy())
    {'truncated': 'close', 'odd_stop': 'refuse', 'forgive': [], 'further_keys': []}
    """
    return _converter().unstructure(value)


def from_data(data: Any, kind: type[T]) -> T:
    """Return the value of class `kind` that plain `data` describe.

    A list of whole steps is read as a `Trajectory`, too. Raises `InputError` that names every place where the
    data are wrong, including unknown keys.

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
        return f"unknown keys: {', '.join(sorted(error.extra_fields))}"
    return str(error)


@cache
def _converter() -> Converter:
    """Build the converter at first use: sequences as lists, enumerations by name, values by fields."""
    converter = Converter(forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})
    read, write = converter.register_structure_hook, converter.register_unstructure_hook
    read(Ids, lambda data, _: Ids.of(data))
    write(Ids, Ids.tolist)
    read(Messages, lambda data, _: Messages.of(data))
    write(Messages, list)
    read(Ledger, _ledger)
    write(Ledger, lambda ledger: [[_name(span.origin), span.stop - span.start] for span in ledger.spans])
    read(Media, lambda data, _: Media.of(converter.structure(data, list[MediaRange])))
    write(Media, lambda media: converter.unstructure(list(media)))
    read(Enum, _by_name)
    write(Enum, _name)
    read(tuple[float | None, ...] | None, lambda data, _: data)
    read(Trajectory, lambda data, kind: _trajectory(data, kind, converter))
    write(Trajectory, lambda steps: _trajectory_data(steps, converter))
    converter.register_unstructure_hook_func(
        lambda kind: bool(kind == frozenset[Forgiveness]), lambda names: sorted(map(_name, names))
    )
    converter.register_unstructure_hook_func(lambda kind: bool(kind == frozenset[str]), sorted)
    converter.register_structure_hook_func(
        lambda kind: bool(kind == tuple[int, ...]), lambda data, _: checked(data, "ids")
    )
    for plain in (bool, int, str):
        read(plain, _plain)
    read(bytes, lambda data, _: _bytes(data))
    write(bytes, _base64)
    converter.register_structure_hook_factory(attrs.has, lambda kind: _structure(kind, converter))
    read(SamplingMask, _sampling_mask)
    write(SamplingMask, _sampling_mask_data)
    without = override(
        omit_if_default=True
    )  # a step without media or masks is stored as before there were any
    write(Step, make_dict_unstructure_fn(Step, converter, media=without, sampling_mask=without))
    delta = make_dict_unstructure_fn(
        StepDelta, converter, media=without, shared_media=without, sampling_mask=without
    )
    write(StepDelta, delta)
    return converter


@attrs.frozen
class _StoredTrajectory:
    """A trajectory as plain data.

    Attributes:
        steps: What each step adds to those before it.
        checks: A checksum of the steps so far, for each step.
    """

    steps: list[StepDelta]
    checks: list[int]


def _trajectory_data(trajectory: Trajectory, converter: Converter) -> dict[str, Any]:
    steps = converter.unstructure(deltas(trajectory))
    return {"steps": steps, "checks": list(_checks(steps))}


def _trajectory(data: Any, kind: type[Trajectory], converter: Converter) -> Trajectory:
    """Read a trajectory from what its steps add, or from a list of whole steps."""
    if not isinstance(data, Mapping):
        return kind(converter.structure(data, list[Step]))
    stored = converter.structure(data, _StoredTrajectory)
    try:
        trajectory = joined(kind, stored.steps)
        _verify(converter.unstructure(stored.steps), stored.checks)
    except InputError as error:
        raise InputError(f"{kind.__name__}.{error}") from None
    return trajectory


def _verify(steps: Sequence[dict[str, Any]], checks: Sequence[int]) -> None:
    """Raise `InputError` naming the first step that was changed: steps after it would get other ids."""
    if len(checks) != len(steps):
        raise InputError(f"checks has {len(checks)} values for {len(steps)} steps: give one for each")
    for index, (expected, found) in enumerate(zip(checks, _checks(steps), strict=True)):
        if expected != found:
            raise InputError(
                f"steps[{index}]: the data are not those that to_data wrote: write the trajectory again, or "
                "give a list of whole steps"
            )


def _checks(steps: Iterable[dict[str, Any]]) -> Iterator[int]:
    """Yield for each step a CRC-32 of the steps so far.

    Log-probabilities are left out: JSON writers may give the same number more digits or fewer.
    """
    check = 0
    for index, step in enumerate(steps):
        try:
            text = json.dumps({**step, "logprobs": None}, sort_keys=True)
        except ValueError:
            raise InputError(
                f"steps[{index}] has a number of thousands of digits: write it as text"
            ) from None
        check = binascii.crc32(text.encode(), check)
        yield check


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


def _sampling_mask_data(mask: SamplingMask) -> dict[str, Any]:
    """Return kept ids as base64 of four bytes each, little-endian: as numbers they take some seven."""
    ids = struct.pack(f"<{len(mask.ids)}I", *mask.ids)
    return {"ids": _base64(ids), "counts": mask.counts.tolist()}


def _sampling_mask(data: Any, _: type) -> SamplingMask:
    if not isinstance(data, Mapping) or set(data) != {"ids", "counts"}:
        raise InputError("a sampling mask is an object with ids and counts")
    ids = _bytes(data["ids"])
    if len(ids) % 4:
        raise InputError(f"ids of a sampling mask have {len(ids)} bytes: give four for each id")
    return SamplingMask(struct.unpack(f"<{len(ids) // 4}I", ids), data["counts"])


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


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
