"""Write rows as a Parquet file, for Hugging Face `datasets` and data frames."""

from __future__ import annotations

from importlib import import_module
from typing import Any, BinaryIO

import attrs

from tito_core import InputError
from tito_io.extras import install

from .entry import Entry
from .trainer_columns import COLUMNS, MASK, Columns

TOGETHER = 1_000_000
"""Ids per group of rows, kept ones included: this much is in memory at a time."""


def library() -> Any:
    """Return pyarrow with its Parquet module; raises `InputError` if it is not installed."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise InputError(f"Parquet needs pyarrow: {install('parquet')}, or write .jsonl") from None


def schema(columns: Columns = COLUMNS["tito"]) -> Any:
    """Return the columns' types.

    Log-probabilities are doubles, so that every digit that was read is written.
    """
    pa = library()
    if columns.types is not None:
        return pa.schema({name: _type(pa, kind) for name, kind in columns.types.items()})
    return _own_schema(pa)


def _type(pa: Any, kind: str) -> Any:
    if kind == MASK:
        return pa.struct([(name, pa.list_(pa.int32())) for name in ("ids", "counts")])
    of, _, name = kind.rpartition(":")
    single = getattr(pa, name)()
    return pa.list_(single) if of else single


def _own_schema(pa: Any) -> Any:
    """Return the types of tito's own columns."""
    whole, long, number, text = pa.int32(), pa.int64(), pa.float64(), pa.string()
    place = [("start", whole), ("stop", whole)]
    span = [("origin", text), *place, ("call", text), ("weights", text), ("trained", pa.bool_())]
    turn = [("call", text), *place, ("finish_reason", text), ("ending", text), ("trained", pa.bool_())]
    turn += [("reward", number), ("reward_to_go", number), ("weight", number)]
    ranges = pa.list_(pa.struct(place))
    experts = {"data": pa.large_binary(), "dtype": text, "shape": pa.list_(long)}
    experts |= {"valid": ranges, "corrected": ranges}
    types = {
        "conversation": text,
        "group": text,
        "line": long,
        "place": long,
        "name": text,
        "ids": pa.list_(whole),
    }
    types |= {"loss_mask": pa.list_(pa.int8()), "logprobs": pa.list_(number)}
    types |= {"processed_logprobs": pa.bool_(), "sampling_mask": _type(pa, MASK)}
    types |= {"spans": pa.list_(pa.struct(span)), "turns": pa.list_(pa.struct(turn))}
    medium = {"modality": text, "identity": text, "offset": whole, "length": whole}
    types |= {"media": pa.list_(pa.struct([*medium.items(), ("collapsed", pa.list_(whole))]))}
    types |= {"experts": pa.struct(list(experts.items())), "left_out": long}
    types |= {"reward": number, "weight": number, "tree": text, "follows": text, "agent": text}
    return pa.schema(types | {"auxiliary": pa.bool_(), "metadata": text})


@attrs.define
class Parquet:
    """Writes rows in groups."""

    file: BinaryIO
    columns: Columns = COLUMNS["tito"]
    rows: int = 0
    _schema: Any = attrs.field(init=False)
    _writer: Any = attrs.field(init=False)
    _group: list[dict[str, Any]] = attrs.field(factory=list)
    _ids: int = 0

    def __attrs_post_init__(self) -> None:
        """Begin the file, so that it has columns even without rows."""
        self._schema = schema(self.columns)
        self._writer = library().parquet.ParquetWriter(self.file, self._schema, compression="zstd")

    def write(self, entry: Entry) -> None:
        """Add a row, and write a group of rows once it is large enough."""
        self._group.append(self.columns.make(entry))
        self.rows += 1
        mask = entry.row.sampling_mask
        self._ids += len(entry.row) + (len(mask.ids) if mask else 0)
        if self._ids >= TOGETHER:
            self.finish()

    def finish(self) -> None:
        """Write the group of rows that is in memory."""
        if self._group:
            self._writer.write_table(library().Table.from_pylist(self._group, schema=self._schema))
        self._group, self._ids = [], 0

    def close(self) -> None:
        """Write the file's end."""
        self._writer.close()
