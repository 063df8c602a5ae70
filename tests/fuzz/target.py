"""What a fuzzer runs: a parser of bytes, and seeds that it can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs

Parser: TypeAlias = Callable[[bytes], object]
"""Takes bytes; returns a value, or raises one of the target's errors."""


@attrs.frozen(kw_only=True)
class Target:
    """One or more parsers of similar bytes.

    The first byte of an input chooses the parser, so that one run covers all of them.

    Attributes:
        name: The target's name on the command line.
        parsers: The parsers by name, with a valid input each.
        errors: The errors that bytes may raise. Any other exception is a finding.
        json: Whether inputs are JSON, event streams or JSON lines, so that values are worth replacing.
    """

    name: str
    parsers: Mapping[str, tuple[Parser, bytes]]
    errors: tuple[type[Exception], ...]
    json: bool = True

    @property
    def seeds(self) -> list[bytes]:
        """The smallest inputs that reach each parser: its number, and its valid input."""
        return [bytes([place]) + seed for place, (_, seed) in enumerate(self.parsers.values())]

    def parser(self, data: bytes) -> Parser:
        """Return the parser that the first byte of `data` chooses."""
        parsers = [parser for parser, _ in self.parsers.values()]
        return parsers[data[0] % len(parsers) if data else 0]

    def run(self, data: bytes) -> bool:
        """Parse an input; return whether it was accepted. Raises what is a finding."""
        try:
            self.parser(data)(data[1:])
        except self.errors:
            return False
        return True
