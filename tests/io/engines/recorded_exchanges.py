"""Recorded exchanges with real engines, which lie outside of the project.

The environment variable TITO_EXCHANGES names their folder. Each line of a file is one exchange, with its
name, path, request, status and response.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

FOLDER = os.environ.get("TITO_EXCHANGES")


def recorded(files: str) -> list[dict[str, Any]]:
    """Return the exchanges of the files whose names match; an empty list without the folder."""
    found = sorted(Path(FOLDER).glob(files)) if FOLDER else []
    return [orjson.loads(line) for file in found for line in _read(file).splitlines()]


def _read(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


def parameters(found: Iterable[dict[str, Any]]) -> list[Any]:
    """Return exchanges as parameters of a test; if there are none, one parameter that is skipped."""
    skip = pytest.mark.skip(reason="needs recorded exchanges: name their folder with TITO_EXCHANGES")
    return [pytest.param(one, id=one["name"]) for one in found] or [pytest.param({}, id="none", marks=skip)]
