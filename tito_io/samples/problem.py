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

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"
