"""Readers of routed experts, which each engine sends in another form; the data stay bytes.

vLLM sends a `.npy` file in base64: its header is a Python literal, so that numpy is not needed. Dynamo sends
`{"data": base64, "shape": [positions, layers, experts], "dtype": "uint8", "start": 0}`, keys in any order.
SGLang sends the base64 of numbers alone.
"""

from __future__ import annotations

import ast
import binascii
import math
import re
import struct
from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import attrs

from tito_core.samples import RoutedExperts

from .invariants import Check

WIDTHS = {"uint8": 1, "uint16": 2, "int32": 4}
"""Bytes per number, by numpy's name of the type."""
DIMENSIONS = 3
"""Positions, layers, experts."""
MAGIC = b"\x93NUMPY"
KINDS = {"|u1": "uint8", "<u2": "uint16", "<i4": "int32"}
"""The types that vLLM sends: the narrowest that holds every expert's number."""
LENGTHS = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}
"""How the header's length is written, by the format's version."""
MEMBERS = {"descr", "fortran_order", "shape"}
LONGEST_HEADER = 1000
BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


@attrs.frozen
class Routing:
    """The shape of routed experts, which SGLang sends as bare numbers.

    Attributes:
        layers: How many layers route.
        experts: How many experts an id goes through in each layer.
    """

    layers: int
    experts: int


def npy_experts(text: str, start: int = 0) -> RoutedExperts:
    """Return routed experts from the base64 of a `.npy` file; raises `ValueError` for other data.

    `start` is the position of the first row. A row has as many layers as `shape` says, each with as many
    experts.
    """
    if not BASE64.fullmatch(text):
        raise ValueError("it is not base64")
    text_of_header, data = _split(binascii.a2b_base64(text))
    header = _header(text_of_header)
    dtype = KINDS.get(header["descr"], "")
    if not dtype:
        raise ValueError(f"its numbers are {header['descr']!r:.20}, where {', '.join(KINDS)} are known")
    shape = header["shape"]
    whole = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if not whole or len(shape) != DIMENSIONS:
        raise ValueError(f"its shape is {shape!r:.40}, where positions, layers and experts belong")
    if len(data) != WIDTHS[dtype] * math.prod(shape):
        raise ValueError(f"{len(data)} bytes do not make {'x'.join(map(str, shape))} of {dtype}")
    return RoutedExperts(data=data, dtype=dtype, shape=shape, start=start)


def _split(file: bytes) -> tuple[bytes, bytes]:
    """Return the header and the data."""
    if len(file) < len(MAGIC) + 2 or not file.startswith(MAGIC) or file[len(MAGIC)] not in LENGTHS:
        raise ValueError("it is not a .npy file")
    length, begin = LENGTHS[file[len(MAGIC)]], len(MAGIC) + 2
    if len(file) < begin + length.size:
        raise ValueError("it ends in its header")
    end = begin + length.size + length.unpack_from(file, begin)[0]
    header = file[begin + length.size : end]
    if len(header) > LONGEST_HEADER or end > len(file):
        raise ValueError("its header is longer than it says, or than any should be")
    return header, file[end:]


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = ast.literal_eval(text.decode("latin-1").strip())
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError("its header cannot be read") from None
    if not isinstance(header, dict) or set(header) != MEMBERS or header["fortran_order"] is not False:
        raise ValueError("its header does not say C order, a shape and what its numbers are")
    if not isinstance(header["descr"], str):
        raise ValueError("its rows are records")  # noqa: TRY004  # the file is wrong, not the caller
    return header


def described_experts(check: Check, fields: object, ids: int) -> RoutedExperts:
    """Read routed experts; `ids` counts prompt and completion together, and no row may lie beyond."""
    dtype, shape = check.get(fields, "dtype", str), check.get(fields, "shape", list)
    start = fields.get("start", 0) if isinstance(fields, Mapping) else 0
    if dtype not in WIDTHS:
        check.fail(f"routed experts are {dtype!r:.20}, where one of {', '.join(WIDTHS)} belongs")
    if len(shape) != DIMENSIONS or not all(type(size) is int and size >= 0 for size in shape):
        check.fail(f"routed experts have the shape {shape!r:.40}, where positions, layers, experts belong")
    if type(start) is not int or start < 0 or start + shape[0] > ids:
        check.fail(f"{shape[0]} rows of routed experts from position {start!r:.20} on, of {ids} ids")
    try:
        data = b64decode(check.get(fields, "data", str), validate=True)
    except ValueError:  # also for letters that are not ASCII
        check.fail("the data of routed experts is not base64")
    check.count("bytes of routed experts", len(data), "expected ones", math.prod(shape) * WIDTHS[dtype])
    return RoutedExperts(data=data, dtype=dtype, shape=tuple(shape), start=start)


def bare_experts(
    check: Check, data: object, positions: int, start: int, routing: Routing | None
) -> RoutedExperts | None:
    """Return which experts the ids went through; `positions` are prompt and completion together.

    The last id was never an input, so there is one row less than ids. The bytes have no header. Without
    `routing` the shape has two axes: positions, and the numbers of all layers side by side.
    """
    if data is None:
        return None
    try:
        raw = b64decode(check.typed(data, str, "routed_experts"), validate=True)
    except ValueError as error:
        check.fail(f"`routed_experts` is unreadable: {error}")
    rows = positions - 1 - start
    shape = _shape(len(raw) // WIDTHS["int32"], rows, routing)
    if math.prod(shape) * WIDTHS["int32"] != len(raw) or shape[0] != rows:
        check.fail(
            f"`routed_experts` has {len(raw)} bytes, which {rows} positions from {start} on do not make"
        )
    return RoutedExperts(data=raw, dtype="int32", shape=shape, start=start)


def _shape(numbers: int, rows: int, routing: Routing | None) -> tuple[int, ...]:
    """Return the shape of `numbers` numbers: `rows` positions, and per position the layers and experts.

    >>> _shape(24, 3, Routing(layers=4, experts=2)), _shape(24, 3, None)
    ((3, 4, 2), (3, 8))
    """
    if routing is not None:
        return numbers // (routing.layers * routing.experts), routing.layers, routing.experts
    return rows, numbers // max(rows, 1)
