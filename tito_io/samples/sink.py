"""Write rows to a file, whose suffix names its kind, or to standard output.

A file gets its name when it is complete; until then it has the suffix `.part`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import attrs

from tito_core import InputError

from .entry import Entry


class Sink(Protocol):
    """Writes rows one by one."""

    def write(self, entry: Entry) -> None:
        """Write a row; raises `InputError` for a row that this kind of file cannot hold."""

    def finish(self) -> None:
        """Write the file's end."""

    def close(self) -> None:
        """Free resources, whether the file was finished or not."""


@attrs.define
class CountingSink:
    """A sink that counts its rows.

    Attributes:
        sink: Writes them.
        rows: How many were written.
    """

    sink: Sink
    rows: int = 0

    def write(self, entry: Entry) -> None:
        """Write a row and count it."""
        self.sink.write(entry)
        self.rows += 1

    def finish(self) -> None:
        """Write the file's end."""
        self.sink.finish()

    def close(self) -> None:
        """Free resources."""
        self.sink.close()


def _json_lines(file: BinaryIO) -> Sink:
    from .jsonl import JsonLines  # noqa: PLC0415  # each kind of file loads its own libraries, when it is asked for

    return JsonLines(file)


def _parquet(file: BinaryIO) -> Sink:
    from .parquet import Parquet  # noqa: PLC0415  # likewise

    return Parquet(file)


def _safetensors(file: BinaryIO) -> Sink:
    from .tensors import Tensors  # noqa: PLC0415  # likewise

    return Tensors(file)


KINDS: dict[str, Callable[[BinaryIO], Sink]] = {
    ".jsonl": _json_lines,
    ".parquet": _parquet,
    ".safetensors": _safetensors,
}


def kind_of(path: Path) -> Callable[[BinaryIO], Sink]:
    """Return what opens a file of the kind that its suffix names; raises `InputError` for another suffix."""
    kind = KINDS.get(path.suffix)
    if kind is None:
        raise InputError(f"{path} has an unknown suffix: name a file that ends in {', '.join(KINDS)}")
    return kind


@contextmanager
def open_sink(path: Path | None, stdout: BinaryIO, *, keep_old: bool = False) -> Iterator[Sink]:
    """Open the file that rows are written to; without a path, JSON lines go to `stdout`.

    An existing file is replaced at the end. It stays if an exception is raised in the block and, with
    `keep_old`, also if no row was written. Raises `InputError` if the file cannot be written.
    """
    if path is None:
        yield _json_lines(stdout)
        return
    open_kind, part = kind_of(path), path.with_name(path.name + ".part")
    try:
        file = part.open("wb")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    try:
        with file, closing(open_kind(file)) as sink:
            counting = CountingSink(sink)
            yield counting
            sink.finish()
        if counting.rows or not keep_old or not path.exists():
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
