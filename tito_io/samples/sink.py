"""Write rows to a file, whose suffix names its kind, or to standard output.

A file gets its name when it is complete (`tito_io.atomic_write`).
"""

from __future__ import annotations

import base64
import struct
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import attrs
import orjson

from tito_core import InputError
from tito_io.atomic_write import replaced

from .entry import Entry, check_finite
from .trainer_columns import COLUMNS, Columns

SUFFIXES = (".jsonl", ".parquet", ".safetensors")


class Sink(Protocol):
    """Writes rows one by one.

    Attributes:
        rows: How many were written.
    """

    rows: int

    def write(self, entry: Entry) -> None:
        """Write a row; raises `InputError` for a row that this kind of file cannot hold."""

    def finish(self) -> None:
        """Write the file's end."""

    def close(self) -> None:
        """Free resources, whether the file was finished or not."""


@attrs.define
class JsonLines:
    """Writes one row per line.

    Read them with a JSON parser, or with pyarrow and the explicit schema `parquet.schema()`. Do not let
    pyarrow infer types, as Hugging Face `datasets` does for JSON. Its version 26.0.1 then moves the numbers
    of a list that begins with null, without an error: `[null, null, 1.5]` becomes `[1.5, 0.0, 0.0]`. The
    log-probabilities of every row begin with null. For `datasets` write Parquet, which has explicit types.
    Nor does pyarrow read base64: routed experts and the ids of sampling masks are for a JSON parser.
    """

    file: BinaryIO
    columns: Columns = COLUMNS["tito"]
    rows: int = 0

    def write(self, entry: Entry) -> None:
        """Write a row; raises `InputError` for an infinite or undefined number."""
        columns = self.columns.make(entry)
        check_finite(entry.row, entry.row.logprobs)
        self.file.write(orjson.dumps(columns, default=in_base64, option=orjson.OPT_APPEND_NEWLINE))
        self.rows += 1

    def finish(self) -> None:
        """Do nothing: a file of lines has no end to write."""

    def close(self) -> None:
        """Do nothing: there are no resources."""


def in_base64(value: Any) -> str:
    """Return base64 of bytes, or of an array of 32 bits, little-endian: what JSON has no type for."""
    data = struct.pack(f"<{len(value)}i", *value) if isinstance(value, array) else value
    return base64.b64encode(data).decode()


def kind_of(path: Path, columns: Columns = COLUMNS["tito"]) -> Callable[[BinaryIO], Sink]:
    """Return what writes files with this suffix.

    Raises `InputError` for an unknown suffix, and for one whose columns are not to be chosen.
    """
    match path.suffix:
        case ".jsonl":
            return partial(JsonLines, columns=columns)
        case ".parquet":
            from .parquet import Parquet  # noqa: PLC0415  # loads pyarrow, which is an extra

            return partial(Parquet, columns=columns)
        case ".safetensors" if columns is not COLUMNS["tito"]:
            raise InputError(
                f"{path} has Miles' names: name a file that ends in .jsonl or .parquet for others"
            )
        case ".safetensors":
            from .tensors import Tensors  # noqa: PLC0415  # loads the readers of Miles' replies

            return Tensors
    raise InputError(f"{path} has an unknown suffix: name a file that ends in {', '.join(SUFFIXES)}")


@contextmanager
def open_sink(
    path: Path | None,
    stdout: BinaryIO,
    *,
    keep_old: bool = False,
    columns: Columns = COLUMNS["tito"],
) -> Iterator[Sink]:
    """Open the file that rows are written to; without a path, JSON lines go to `stdout`.

    An existing file is replaced at the end. It stays if an exception is raised in the block and, with
    `keep_old`, also if no row was written; a file that did not exist is not created then. Raises
    `InputError` if the file cannot be created.
    """
    if path is None:
        yield JsonLines(stdout, columns)
        return
    kind = kind_of(path, columns)
    with output_file(path) as (file, keep), closing(kind(file)) as sink:
        yield sink
        sink.finish()
        if keep_old and not sink.rows:
            keep()


@contextmanager
def output_file(path: Path) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """Open a file as `atomic_write.replaced` does; raises `InputError` if it cannot be created."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(replaced(path))
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error
        yield file
