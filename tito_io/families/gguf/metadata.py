"""Read the metadata of a GGUF file: names and values in front of the tensors, which are not read.

The package `gguf` reads them, too, and needs half a minute for a vocabulary of 262,144 tokens, since it makes
an array of each string. This reads them in a second. The format is described in `docs/gguf.md` of ggml.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import define

from tito_io.families.folder import FolderError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
"""Version 1 had other lengths, and no file of it is in use."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Formats of `struct` by the format's numbers of value types."""
_STRING, _ARRAY = 8, 9
LONGEST_ARRAY = 1 << 24
"""Values of an array. The longest in use, of merges, have a thirtieth."""
ALIGNMENT = 32
"""Tensors begin at multiples of this, unless `general.alignment` says otherwise."""
T = TypeVar("T")
_WANTED = ("general.", "tokenizer.", "split.")


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Return the metadata of the GGUF file at `path` by key; raises `FolderError` for another file.

    Of the model's own keys, such as `llama.context_length`, those with a single value are returned, and of
    `general`, `tokenizer` and `split` all.
    """
    return _read(Path(path), _Reader.metadata)


def check_whole(path: str | Path) -> None:
    """Raise `FolderError` where a GGUF file ends before its last tensor begins, as a copy that was cut does.

    Where the last tensor itself is cut, llama.cpp says so when it loads the file.
    """
    file = Path(path)
    start, size = _read(file, _Reader.last_tensor), file.stat().st_size
    if start >= size:
        raise FolderError(
            f"{file}: is cut: it has {size:,} bytes, and more than {start:,} are needed; copy the file anew"
        )


def _read(file: Path, read: Callable[[_Reader], T]) -> T:
    """Return what `read` makes of a file, from behind the magic bytes on."""
    if not file.is_file():
        raise FolderError(f"{file}: is not a file; give a GGUF file on this machine, nothing is downloaded")
    try:
        with file.open("rb") as opened:
            _check_magic(file, opened.read(len(MAGIC)))
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                return read(_Reader(mapped, len(MAGIC)))
    except OSError as error:
        raise FolderError(f"{file}: cannot be read: {error.strerror}") from error
    except FolderError:
        raise
    except struct.error as error:
        raise FolderError(f"{file}: is damaged: it ends within its metadata; copy the file anew") from error
    except (ValueError, KeyError, OverflowError, RecursionError) as error:
        raise FolderError(f"{file}: its metadata are damaged: {error}; copy the file anew") from error


def _check_magic(file: Path, begin: bytes) -> None:
    if begin != MAGIC:
        name = MAGIC.decode()
        raise FolderError(f"{file}: is not a GGUF file: it does not begin with {name}; give another file")


@define
class _Reader:
    """Reads values one after the other.

    Attributes:
        mapped: The file.
        at: The offset of the next value.
        tensors: How many tensors follow the metadata, once these were read.
    """

    mapped: mmap.mmap
    at: int
    tensors: int = 0

    def metadata(self) -> dict[str, Any]:
        """Return all metadata that are wanted, from behind the magic bytes on."""
        version = self.scalar("I")
        if version not in VERSIONS:
            raise ValueError(f"version {version} of the format: known are {VERSIONS}")
        self.tensors = self.scalar("Q")
        values = {}
        for _ in range(self.scalar("Q")):
            key = self.string()
            value = self.value(self.scalar("I"))
            if key.startswith(_WANTED) or not isinstance(value, list):
                values[key] = value
        return values

    def last_tensor(self) -> int:
        """Return the offset at which the last tensor begins; 0 for a file without tensors."""
        step = self.metadata().get("general.alignment") or ALIGNMENT
        if not isinstance(step, int):
            raise ValueError(f"general.alignment is {step!r:.20}")  # noqa: TRY004  # a file, not an argument
        offsets = [self.tensor() for _ in range(self.tensors)]
        return -(-self.at // step) * step + max(offsets) if offsets else 0

    def tensor(self) -> int:
        """Return where a tensor begins, counted from the first one: behind its name, sizes and type."""
        self.string()
        for _ in range(self.scalar("I")):
            self.scalar("Q")
        self.scalar("I")
        return int(self.scalar("Q"))

    def scalar(self, form: str) -> Any:
        """Return a number or a truth value."""
        (value,) = struct.unpack_from(f"<{form}", self.mapped, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def string(self) -> str:
        """Return a string. Bytes that are no UTF-8 are kept as half surrogates."""
        start = self.at + 8
        end = start + self.scalar("Q")
        if end > len(self.mapped):
            raise ValueError(f"a string of {end - start} bytes at byte {start} ends behind the file's end")
        self.at = end
        return self.mapped[start:end].decode(errors="surrogateescape")

    def value(self, kind: int) -> Any:
        """Return a value of this kind."""
        if kind == _STRING:
            return self.string()
        return self.array() if kind == _ARRAY else self.scalar(_SCALARS[kind])

    def array(self) -> list[Any]:
        """Return an array."""
        kind, length = self.scalar("I"), self.scalar("Q")
        if length > LONGEST_ARRAY:
            raise ValueError(
                f"an array at byte {self.at} has {length} values, and {LONGEST_ARRAY} are the most"
            )
        if kind in _SCALARS:
            return self.numbers(_SCALARS[kind], length)
        one: Callable[[], Any] = self.string if kind == _STRING else self.array
        return [one() for _ in range(length)]

    def numbers(self, form: str, length: int) -> list[Any]:
        """Return an array of numbers."""
        values = struct.unpack_from(f"<{length}{form}", self.mapped, self.at)
        self.at += struct.calcsize(f"<{length}{form}")
        return list(values)


def texts(metadata: Mapping[str, Any], key: str, origin: str) -> list[str]:
    """Return the array of strings at `key`; raises `FolderError` for another value."""
    return _typed(metadata, key, origin, str, "texts")


def integers(metadata: Mapping[str, Any], key: str, origin: str) -> list[int]:
    """Return the array of integers at `key`; raises `FolderError` for another value."""
    return _typed(metadata, key, origin, int, "integers")


def _typed(metadata: Mapping[str, Any], key: str, origin: str, kind: type, name: str) -> list[Any]:
    value = metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):
        raise FolderError(f"{origin}: {key} must be an array of {name}; convert the model anew")
    return value
