"""Decode and parse request bodies within limits: a few bytes may stand for gigabytes, or for many values."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
import zstandard

from tito_io.fields import utf8_fault

from .refusals import GatewayLimits, RequestRefused, bad_request, body_too_long, limit_reached

WINDOW = 8 << 20
"""The largest window of zstd in HTTP (RFC 9659), where the body itself may not be longer."""
MEMBERS = 64
"""The most members of a gzip body. Clients send one; millions of empty ones take seconds."""
SMALL = 64 << 10
"""A body that is no longer than this, in bytes, is parsed at once. It takes a few milliseconds at most."""
PIECE = 16 << 10
"""How many bytes are decoded or counted at once; of gzip, they stand for 16 MiB at most."""
MESSAGES = ("contents", "input", "messages")
"""The fields with a request's messages, in all APIs."""
PARTS = ("content", "parts")
"""The fields with a message's parts. A part may have parts."""
OPENINGS, SEPARATORS = (b"[", b"{"), (b",", b":")
"""Each list or object begins with one of the former. Keys and values are separated by the latter."""


def _gzip(data: bytes, most: int) -> bytes:
    found, place, members = bytearray(), 0, 0
    while place < len(data) and len(found) < most:
        members += 1
        if members > MEMBERS:
            raise bad_request(f"the body has more than {MEMBERS} gzip members; compress it as one")
        place = _gzip_member(data, place, found, most)
    return bytes(found)


def _gzip_member(data: bytes, place: int, found: bytearray, most: int) -> int:
    """Decode the member at a place; return the place of the next one.

    It is read in pieces, since all that follows the end of a member is copied.
    """
    reader = zlib.decompressobj(zlib.MAX_WBITS | 16)
    while not reader.eof and len(found) < most:
        piece = data[place : place + PIECE]
        if not piece:
            raise EOFError
        found += reader.decompress(piece, most - len(found))
        place += len(piece) - len(reader.unused_data)
    return place


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

    >>> decoded(zlib.compress(b"{}"), "deflate", 10)
    b'{}'
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        return data
    if name not in CODINGS:
        text = f"content-encoding {coding!r:.40} is not read; use gzip, deflate or zstd, or none"
        accepted = {"accept-encoding": "gzip, deflate, zstd"}  # RFC 9110, 15.5.16
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", text, headers=accepted
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


def parsed(data: bytes, limits: GatewayLimits) -> Any:
    """Return the JSON value of a body; raises `RequestRefused` before too many values are built.

    >>> parsed(b'{"a": [1]}', GatewayLimits())
    {'a': [1]}
    """
    if len(data) > SMALL:
        _check_values(data, limits)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "depth" in error.msg:
            raise bad_request(f"the body nests too deep at character {error.pos + 1}: flatten it") from None
        fault = utf8_fault(data) or f"is not valid JSON at character {error.pos + 1}: {error.msg:.80}"
        raise bad_request(f"the body {fault}; a compressed body needs a content-encoding") from None


def check_messages(body: Mapping[str, Any], most: int) -> None:
    """Raise `RequestRefused` for more than `most` messages, before any is read.

    >>> check_messages({"input": [{"role": "user", "content": [{}, {}]}]}, 1)
    Traceback (most recent call last):
    tito_io.serve.refusals.RequestRefused: messages and parts in input: 2, and at most 1; raise --max-messages
    """
    for name in MESSAGES:
        given = body.get(name)
        count = _messages(given) if isinstance(given, list) else 0
        if count > most:
            raise limit_reached(f"messages and parts in {name}", count, most, "--max-messages", name)


def _messages(given: Sequence[Any]) -> int:
    """Return how many messages there are, where one of several parts counts as so many."""
    count, level = 0, given
    while level:
        inside = [parts for one in level if (parts := _parts(one))]
        count += len(level) - len(inside)
        level = [part for parts in inside for part in parts]
    return count


def _parts(message: Any) -> list[Any]:
    found = map(message.get, PARTS) if isinstance(message, dict) else ()
    return next((parts for parts in found if isinstance(parts, list)), [])


def _check_values(data: bytes, limits: GatewayLimits) -> None:
    """Refuse a body of too many values, counted with strings first, which is fast, and then without."""
    if _counts(data, OPENINGS) <= limits.containers and _counts(data, SEPARATORS) <= limits.scalars:
        return
    containers = scalars = quotes = 0
    for outside, found in _outside_strings(data):
        containers += _counts(outside, OPENINGS)
        scalars += _counts(outside, SEPARATORS)
        quotes += found
        if containers > limits.containers:
            raise limit_reached("lists and objects in this body", None, limits.containers, "--max-containers")
        # Strings that nothing separates are not JSON; without this, to count them would take seconds.
        if max(scalars, quotes // 2 - containers - 1) > limits.scalars:
            raise limit_reached("keys and values in this body", None, limits.scalars, "--max-scalars")


def _counts(data: bytes, signs: tuple[bytes, ...]) -> int:
    """Return how often signs occur; between two pieces other threads run."""
    places = range(0, len(data), PIECE)
    return sum(data.count(sign, place, place + PIECE) for sign in signs for place in places)


def _outside_strings(data: bytes) -> Iterator[tuple[bytes, int]]:
    r"""Yield what of JSON stands outside strings, piece by piece, each with its number of quotation marks.

    >>> list(_outside_strings(rb'{"a\\": "b\"[", "c": 1}'))
    [(b'{: , : 1}', 6)]
    """
    place, inside = 0, False
    while place < len(data):
        piece = data[place : place + PIECE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what is escaped belongs to its backslash
            piece = data[place : place + PIECE + 1]
        place += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[inside::2]), len(parts) - 1
        inside ^= len(parts) % 2 == 0
