"""What could not be read, and where."""

from __future__ import annotations

import attrs


@attrs.frozen
class Problem:
    """Something of a file that is in no conversation, so that no row holds it.

    >>> str(Problem(3, "is no JSON"))
    'line 3: is no JSON'
    """

    line: int
    """Counted from 1."""
    reason: str
    more: int = 0
    """Further lines that the same holds of."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@attrs.frozen
class Nameless(Problem):
    """A line without the id that was to name its conversation."""


GIVE = "give the name of a field that every line has"


def without_id(field: str, more: int = 0) -> str:
    """Return what is to be said of a line without an id, and of more of them.

    >>> without_id("meta.s", 2)
    'has no id at `meta.s`, nor have 2 more lines: give the name of a field that every line has'
    """
    others = f", nor ha{'ve' if more > 1 else 's'} {more:,} more line{'s' * (more > 1)}" if more else ""
    return f"has no id at `{field}`{others}: {GIVE}"
