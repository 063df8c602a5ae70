"""Zstandard files, as bytes; one that breaks off is an error, and not a shorter file."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any, BinaryIO

from tito_core import InputError

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
