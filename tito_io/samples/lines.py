"""The lines of a file, one after the other, compressed or not; never the whole file at once."""

from __future__ import annotations

import gzip
import io
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

import attrs

from tito_core import InputError

HEAD = 4096
"""Bytes that a binary file gives itself away in."""
COMPRESSED = frozenset((".gz", ".zst"))


@attrs.frozen
class FileLine:
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


def lines(path: Path, tick: Callable[[int], None] = lambda _: None) -> Iterator[FileLine]:
    """Yield the lines that are not blank; `tick` is told how many bytes of the file are read.

    A pipe is read as it comes. Raises `InputError` where there is no such file, or it is a folder, no text,
    broken off in its compression or in what it lies on.
    """
    start = 0
    with _plain(path) as file:
        told = file.tell if file.seekable() else lambda: start
        _look(file, path)
        with _opened(path, file) as text:
            for number, raw in enumerate(_each(text, path), 1):
                line = FileLine(number, start, raw)
                if line.text.strip():
                    yield line
                start += len(raw)
                tick(told())


def regular(path: Path) -> None:
    """Raise `InputError` for what can be read only once and only here; machines read a file again."""
    if path.suffix in COMPRESSED:
        raise InputError(f"{path} is compressed: machines read parts of it, so decompress it first")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a pipe or a device: machines read parts of a file, so write one first")


def _plain(path: Path) -> io.BufferedReader:
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


def _look(file: io.BufferedReader, path: Path) -> None:
    """Refuse what is no text, before its bytes are taken for lines."""
    with _read(path):
        head = file.peek(HEAD)[:HEAD]  # a pipe is not wound back
    if path.suffix not in COMPRESSED and b"\0" in head:
        raise InputError(f"{path} is no text: give a file with a JSON object a line")


def _each(text: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield lines, and name the file where it cannot be read, or not in the way that its name says."""
    with _read(path):
        yield from text


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Name the file where reading fails: what it lies on, or its compression."""
    try:
        yield
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} cannot be decompressed: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


CHUNK = 1 << 17


class Frames(io.RawIOBase):
    """The uncompressed bytes of a file of frames."""

    def __init__(self, file: BinaryIO) -> None:
        """Read from a file; raises `InputError` where the library is not installed."""
        try:
            self._library: Any = import_module("zstandard")
        except ImportError:
            raise InputError(
                "a .zst file needs the package zstandard: install it, or decompress it"
            ) from None
        self._file = file
        self._frame: Any = None
        self._left = b""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; raises `EOFError` inside a frame's end, `ValueError` for what is no frame."""
        while not self._left:
            chunk = self._file.read(CHUNK)
            if not chunk:
                if self._frame is not None:
                    raise EOFError("it ends inside of a frame")
                return 0
            self._left = self._plain(chunk)
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size

    def _plain(self, chunk: bytes) -> bytes:
        """Return what a chunk holds, which may end one frame and begin another."""
        found = []
        while chunk:
            self._frame = self._frame or self._library.ZstdDecompressor().decompressobj()
            try:
                found.append(self._frame.decompress(chunk))
            except self._library.ZstdError as error:
                raise ValueError(str(error)) from None
            chunk = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
        return b"".join(found)
