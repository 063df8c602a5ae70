"""Tables of differences from engines: rows with a reason, and patterns of the differences that have it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

R = TypeVar("R")


def named(*given: tuple[Sequence[str], str]) -> bool:
    """Return whether each name has one of the patterns beside it.

    >>> named((("cut/*", "turn/*"), "cut/name"), (("*",), "qwen3")), named((("turn/*",), "cut/name"))
    (True, False)
    """
    return all(any(fnmatchcase(name, pattern) for pattern in patterns) for patterns, name in given)


def read_rows(row: Callable[..., R], path: Path) -> dict[str, R]:
    """Return the rows of a file by name."""
    return {name: row(**fields) for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items()}
