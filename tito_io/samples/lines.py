"""The lines of a file, one after the other, compressed or not; never the whole file at once."""

from __future__ import annotations

import gzip
import io
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import attrs

from tito_core import InputError

from .frames import Frames

HEAD = 4096
"""Bytes that a binary file gives itself away in."""
COMPRESSED = frozenset((".gz", ".zst"))


@attrs.frozen
class Line:
    """One line as it stands in the file."""

    number: int
    """Counted from 1."""
    start: int
    """Bytes before it, of the uncompressed file."""
    raw: bytes = attrs.field(repr=False)
    """With its line break."""

    @property
    def text(self) -> bytes:
        """What it says, without the mark that some editors begin a file with."""
        return self.raw if self.start else self.raw.removeprefix(BOM_UTF8)

    @property
    def stop(self) -> int:
        """Bytes up to its end."""
        return self.start + len(self.raw)


def lines(path: Path, tick: Callable[[int], None] = lambda _: None) -> Iterator[Line]:
    """Yield the lines that are not blank; `tick` is told how many bytes of the file are read.

    Raises `InputError` where there is no such file, or it is a folder, no text or broken off in its
    compression.
    """
    start = 0
    with _plain(path) as file:
        _look(file, path)
        with _opened(path, file) as text:
            for number, raw in enumerate(_each(text, path), 1):
                line = Line(number, start, raw)
                if line.text.strip():
                    yield line
                start += len(raw)
                tick(file.tell())


def _plain(path: Path) -> BinaryIO:
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a file in it")
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _opened(path: Path, file: BinaryIO) -> BinaryIO:
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.GzipFile(fileobj=file))
    return io.BufferedReader(Frames(file)) if path.suffix == ".zst" else file


def _look(file: BinaryIO, path: Path) -> None:
    """Refuse what is no text, before its bytes are taken for lines."""
    head = file.read(HEAD)
    file.seek(0)
    if path.suffix not in COMPRESSED and b"\0" in head:
        raise InputError(f"{path} is no text: give a file with a JSON object a line")


def _each(text: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield lines, and name the file where its compression is not what its name says."""
    try:
        yield from text
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} cannot be decompressed: {error}") from error
