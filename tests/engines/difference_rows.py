"""Tables of differences from engines: rows with a reason, and patterns of the differences that have it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import attrs


@attrs.frozen
class Row:
    """A row of a table: the reason for some differences.

    Attributes:
        why: The reason.
        patterns: Patterns of the differences' attributes, each by its plural: a difference is one of these if
            each attribute that is named has one of its patterns.

    >>> from types import SimpleNamespace
    >>> row = Row("so", {"cases": ["cut/*", "turn/*"], "engines": ["vllm"]})
    >>> [row.names(SimpleNamespace(case=case, engine="vllm")) for case in ("cut/name", "object/name")]
    [True, False]
    """

    why: str
    patterns: Mapping[str, Sequence[str]]

    def names(self, one: object) -> bool:
        """Return whether it gives the reason for a difference."""
        return all(
            any(fnmatchcase(getattr(one, key.removesuffix("s")), pattern) for pattern in patterns)
            for key, patterns in self.patterns.items()
        )


def read_rows(path: Path) -> dict[str, Row]:
    """Return the rows of a file by name."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Row(fields.pop("why"), fields) for name, fields in rows.items()}
