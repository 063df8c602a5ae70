"""Decode compressed request bodies, within a limit: a few bytes may stand for gigabytes."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Mapping
from http import HTTPStatus

import zstandard

from .refusals import RequestRefused, bad_request, body_too_long

WINDOW = 8 << 20
"""The largest window of zstd in HTTP (RFC 9659), where the body itself may not be longer."""


def _gzip(data: bytes, most: int) -> bytes:
    return gzip.GzipFile(fileobj=io.BytesIO(data)).read(most)


def _deflate(data: bytes, most: int) -> bytes:
    """Decode what HTTP calls deflate: a zlib stream, or, from some clients, a raw one."""
    reader = zlib.decompressobj() if data[:1] and data[0] & 0x0F == zlib.DEFLATED else zlib.decompressobj(-15)
    found = reader.decompress(data, most)
    if not reader.eof and len(found) < most:
        raise EOFError
    return found


def _zstd(data: bytes, most: int) -> bytes:
    window = max(WINDOW, most)  # a frame in one piece has a window as long as its content
    if zstandard.get_frame_parameters(data).window_size > window:
        raise MemoryError
    reader = zstandard.ZstdDecompressor(max_window_size=window)
    return reader.stream_reader(data, read_across_frames=True).read(most)


CODINGS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "deflate": _deflate,
    "gzip": _gzip,
    "x-gzip": _gzip,
    "zstd": _zstd,
}
"""Return at most so many bytes of what a body stands for."""
ERRORS = (OSError, EOFError, zlib.error, zstandard.ZstdError)


def decoded(data: bytes, coding: str, most: int) -> bytes:
    """Return a body without its `content-encoding`, in at most `most` bytes; raises `RequestRefused`.

    >>> decoded(gzip.compress(b"{}"), "gzip", 10)
    b'{}'
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        return data
    if name not in CODINGS:
        text = f"content-encoding {coding!r:.40} is not read; use gzip, deflate or zstd, or none"
        accepted = {"accept-encoding": "gzip, deflate, zstd"}  # RFC 9110, 15.5.16
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedEncodingError", text, headers=accepted
        )
    try:
        whole = CODINGS[name](data, most + 1)
    except MemoryError:
        raise body_too_long(most) from None
    except ERRORS:
        raise bad_request(f"the body is not valid {name}, which its content-encoding says") from None
    if len(whole) > most:
        raise body_too_long(most)
    return whole
