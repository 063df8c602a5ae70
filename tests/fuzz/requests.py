"""Clients' requests: bodies in each dialect, compressed bodies, and the gateway's own stored turns."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from typing import Any

import orjson
import zstandard

from tests.io.dialects.dialect_turns import HELLO
from tests.io.dialects.test_bodies import BODIES
from tito_core import InputError
from tito_io.client.sampling import parse_sampling
from tito_io.dialects import Dialect
from tito_io.serve.body import decoded
from tito_io.serve.refusals import RequestRefused

from .target import Parser, Target

MOST = 1 << 16
"""The longest body in the target of compressed ones."""


def _parses(dialect: Dialect) -> Parser:
    """Return what the gateway does with a body: JSON, then the dialect, then its sampling arguments."""

    def parse(data: bytes) -> object:
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise InputError("not JSON") from error
        parsed = dialect.parse(body)
        orjson.dumps(parsed.messages)  # what cannot be written again cannot be stored
        return parse_sampling(parsed.sampling)

    return parse


def _decodes(coding: str) -> Parser:
    def decode(data: bytes) -> bytes:
        body = decoded(data, coding, MOST)
        if len(body) > MOST:
            raise AssertionError(f"{len(body)} bytes, where {MOST} are the most")
        return body

    return decode


def _dialect(dialect: Dialect, body: Any) -> Target:
    return Target(
        name=dialect.name,
        parsers={"body": (_parses(dialect), orjson.dumps(body))},
        errors=(InputError,),
    )


PLAIN = orjson.dumps({"messages": [HELLO]})
COMPRESSED: Mapping[str, tuple[Parser, bytes]] = {
    "gzip": (_decodes("gzip"), gzip.compress(PLAIN, mtime=0)),
    "deflate": (_decodes("deflate"), zlib.compress(PLAIN)),
    "zstd": (_decodes("zstd"), zstandard.ZstdCompressor().compress(PLAIN)),
}
TARGETS = (
    *(_dialect(dialect, body) for dialect, body in BODIES),
    Target(name="compressed", parsers=COMPRESSED, errors=(RequestRefused,), json=False),
)
