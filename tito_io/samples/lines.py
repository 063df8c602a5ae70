"""Read the lines of a file one after the other, compressed or not. An indented object is one line."""

from __future__ import annotations

import gzip
import io
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, cast

import attrs

from tito_core import InputError
from tito_io.extras import install

HEAD = 4096
"""Bytes at the beginning that are searched for a NUL, which no text file has."""
BUFFER = 1 << 18
"""Bytes of one read; progress is reported after each, also inside a long line."""
CHUNK = 1 << 10
"""Compressed bytes that are decompressed at a time: 32 MB at most, because 4 bytes may stand for 128 kB."""
WINDOW = 1 << 27
"""The most bytes that a Zstandard file may refer back, which is the memory that it takes. The program zstd
has the same limit."""
RATIOS: Mapping[str, int] = {".gz": 256, ".zst": 2048}
"""The most bytes that a compressed byte may stand for. In Zstandard, lines that repeat the line before them
reach some 1,000, and blank bytes 30,000. In gzip, lines reach some 100, and blank bytes 1,032."""
UNMEASURED = 1 << 24
"""Bytes that are decompressed before their ratio counts."""
LINES, BYTES_A_LINE = 1 << 18, 4
"""Lines that any compressed file may have, blank ones included, and compressed bytes for each one more."""
VALUES = 1 << 20
"""Values that a line of a compressed file may have; each compressed byte allows one more. A value that takes
three bytes of text takes up to 100 bytes of memory."""
MAX_LINE = 1 << 28
"""Bytes of the longest line, by default. A call with the routed experts of 100,000 ids, of 8 in each of 64
layers, has 70 million."""


@attrs.frozen
class FileLine:
    """One line as it stands in the file.

    Attributes:
        number: Counted from 1.
        start: Bytes of the uncompressed file before it.
        raw: Its bytes with the line break.
    """

    number: int
    start: int
    raw: bytes = attrs.field(repr=False)

    @property
    def text(self) -> bytes:
        """Its bytes without the byte order mark that some editors write at the start of a file."""
        return self.raw if self.start else self.raw.removeprefix(BOM_UTF8)


def lines(
    path: Path, on_read: Callable[[int], None] = lambda _: None, max_line: int = MAX_LINE
) -> Iterator[FileLine]:
    """Yield the lines that are not blank; call `on_read` with the number of bytes read so far.

    For a compressed file `on_read` counts compressed bytes. A pipe is read as it comes. Raises `InputError`
    if the file does not exist, is a folder, is not text, cannot be decompressed or cannot be read to its end,
    or if a line has more than `max_line` bytes.
    """
    start = 0
    with _open(path, on_read) as file:
        with _read_errors(path):
            head = file.peek(HEAD)[:HEAD]  # a pipe cannot be rewound
        if path.suffix not in COMPRESSED and b"\0" in head:
            raise InputError(f"{path} is not a text file: give a file with one JSON object per line")
        text: BinaryIO = file
        if path.suffix in COMPRESSED:
            text = cast("BinaryIO", io.BufferedReader(Proportioned(file, path.suffix), BUFFER))
        with text, _read_errors(path):
            for number in count(1):
                raw = read_line(text, start, max_line)
                if len(raw) > max_line:
                    raise InputError(
                        f"{path}, line {number}: has more than {max_line} bytes; "
                        "write one call or conversation per line, or raise --max-line"
                    )
                if not raw:
                    return
                if text is not file:
                    _require_proportion(path, number, raw, size_read(file))
                if not raw.isspace() and (line := FileLine(number, start, raw)).text.strip():
                    yield line
                start += len(raw)


def read_line(file: BinaryIO, start: int, most: int) -> bytes:
    r"""Return the next line, which begins at `start`; of one with more than `most` bytes, one byte more.

    The first line of a file has all others with it if an object is written over them: Harbor and others
    indent what they write. A line of JSON lines is never `{` alone.

    >>> read_line(io.BytesIO(b'{\n"a": 1}'), 0, 100)
    b'{\n"a": 1}'
    >>> read_line(io.BytesIO(b'{\n"a": 1}'), 0, 4)
    b'{\n"a"'
    """
    line = file.readline(most + 1)
    opens = not start and line.removeprefix(BOM_UTF8).strip() == b"{"
    return line + file.read(most + 1 - len(line)) if opens else line


def require_plain_file(path: Path) -> None:
    """Raise `InputError` for a compressed file or a pipe: a cluster reads parts of a file, and twice."""
    if path.suffix in COMPRESSED:
        raise InputError(f"{path} is compressed, and a cluster reads parts of a file: decompress it first")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(
            f"{path} is a pipe or a device, and a cluster reads parts of a file: write a file first"
        )


def _require_proportion(path: Path, number: int, raw: bytes, size: int) -> None:
    """Raise `InputError` if `size` compressed bytes stand for very many lines, or for very many values."""
    if number > LINES + size // BYTES_A_LINE:
        raise InputError(f"{path} has {number:,} lines in {size:,} compressed bytes: decompress it first")
    if len(raw) > VALUES and sum(map(raw.count, (b",", b":", b"[", b"{"))) > VALUES + size:
        raise InputError(
            f"{path}, line {number}: has more than {VALUES + size:,} values in {size:,} compressed bytes: "
            "decompress the file first"
        )


def size_read(file: io.BufferedReader) -> int:
    """Return how many bytes of a file were read; a pipe does not know its position."""
    return cast("CountedFile", file.raw).size


def _open(path: Path, on_read: Callable[[int], None]) -> io.BufferedReader:
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a file in it")
    try:
        return io.BufferedReader(CountedFile(path, on_read), BUFFER)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Name the file where reading or decompressing fails."""
    try:
        yield
    except InputError:  # it names the file already
        raise
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} cannot be decompressed: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


class CountedFile(io.FileIO):
    """A file that reports how many bytes were read from it."""

    def __init__(self, path: Path, on_read: Callable[[int], None]) -> None:
        """Open the file at `path`; call `on_read` with the sum after each read."""
        super().__init__(path)
        self._on_read, self.size = on_read, 0

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer and report the sum."""
        size = super().readinto(buffer) or 0
        self.size += size
        self._on_read(self.size)
        return size


class ZstdFrames(io.RawIOBase):
    """The uncompressed bytes of a Zstandard file; a file that ends early is an error."""

    def __init__(self, file: BinaryIO) -> None:
        """Read from a file; raises `InputError` if the package zstandard is not installed."""
        try:
            self._library: Any = import_module("zstandard")
        except ImportError:
            raise InputError(
                f"a .zst file needs the package zstandard: {install('zst')}; or decompress the file"
            ) from None
        self._file = file
        self._frame: Any = None
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; raises `EOFError` if the file ends inside a frame, `ValueError` for other bytes."""
        while not self._rest:
            chunk = self._file.read(CHUNK)
            if not chunk:
                if self._frame is not None:
                    raise EOFError("it ends inside a frame")
                return 0
            self._rest = memoryview(self._decompress(chunk))
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def _decompressor(self) -> Any:
        return self._library.ZstdDecompressor(max_window_size=WINDOW)

    def _decompress(self, chunk: bytes) -> bytes:
        """Return the bytes of a chunk, in which one frame may end and another begin."""
        parts = []
        while chunk:
            self._frame = self._frame or self._decompressor().decompressobj()
            try:
                parts.append(self._frame.decompress(chunk))
            except self._library.ZstdError as error:
                raise ValueError(str(error)) from None
            chunk = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
        return b"".join(parts)


COMPRESSED: Mapping[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".zst": ZstdFrames,
}
"""What decompresses a file, by its suffix."""


class Proportioned(io.RawIOBase):
    """The uncompressed bytes of a file."""

    def __init__(self, file: io.BufferedReader, suffix: str) -> None:
        """Decompress a file as its suffix says."""
        self._file, self._ratio, self._size = file, RATIOS[suffix], 0
        self._source = COMPRESSED[suffix](file)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; raises `ValueError` once the bytes read stand for too many."""
        size: int = self._source.readinto(buffer)
        self._size += size
        if self._size > max(UNMEASURED, self._ratio * size_read(self._file)):
            raise ValueError(f"one byte stands for more than {self._ratio}")
        return size
