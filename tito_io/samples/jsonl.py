"""Rows as JSON lines.

Read them with a JSON parser, with `read`, or with pyarrow and `parquet.schema()` for an explicit schema.
Where pyarrow infers types, as Hugging Face `datasets` lets it do for JSON, version 26.0.1 puts the numbers of
a list that begins with null in other places, without an error: `[null, null, 1.5]` becomes `[1.5, 0.0, 0.0]`.
So begin every row's log-probabilities. For `datasets` write Parquet, which says its types.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import orjson

from tito_core import InputError

from .entry import Entry, from_columns, to_columns
from .line_groups import noun_of
from .lines import lines


@attrs.define
class JsonLines:
    """Writes rows, a line each."""

    file: BinaryIO

    def write(self, entry: Entry) -> None:
        """Write a row."""
        self.file.write(line(entry))

    def finish(self) -> None:
        """Every line is its own end."""

    def close(self) -> None:
        """Nothing is held."""


def line(entry: Entry) -> bytes:
    """Return a row as a line."""
    columns = to_columns(entry)
    _finite(entry, columns["logprobs"])
    experts = columns["experts"]
    if experts is not None:
        experts["data"] = base64.b64encode(experts["data"]).decode()
    return orjson.dumps(columns, option=orjson.OPT_APPEND_NEWLINE)


def _finite(entry: Entry, logprobs: list[float | None]) -> None:
    """Refuse numbers that JSON has no word for, and that would become null."""
    numbers = (entry.row.reward, *logprobs)
    if not all(map(math.isfinite, filter(None, numbers))):
        raise InputError(f"row {entry.row.name!r:.60} has a number that is not finite: write .parquet")


def read(path: Path) -> Iterator[Entry]:
    """Yield the rows of a file; raises `InputError` naming the line that is none."""
    for one in lines(path):
        try:
            yield from_columns(_columns(orjson.loads(one.text)))
        except (InputError, orjson.JSONDecodeError, binascii.Error) as error:
            raise InputError(f"{path}, line {one.number}: {error}") from None


def _columns(found: Any) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise InputError(f"{noun_of(found)} is no row")
    experts = found.get("experts")
    if isinstance(experts, dict):
        data = base64.b64decode(experts.get("data") or "", validate=True)
        return {**found, "experts": {**experts, "data": data}}
    return dict(found)
