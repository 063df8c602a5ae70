"""What a version of vLLM can do.

Only what decides how to ask stands here. What differs in answers is read from the answers.
"""

from __future__ import annotations

import re

import attrs

NUMBERS = re.compile(r"(\d+)\.(\d+)")


@attrs.frozen
class Version:
    """A version, as a server says it; one that says none, or something unreadable, is taken for a new one.

    >>> Version.of("0.20.1rc1.dev4+g12ab").generate_streams, Version.of("0.9.2").at_least(0, 10)
    (True, False)
    >>> Version.of(None).ids_by_chat
    True
    """

    said: str | None
    number: tuple[int, int] | None

    @classmethod
    def of(cls, said: str | None) -> Version:
        """Read a version; a development build of no version calls itself 0.1."""
        found = NUMBERS.match(said or "")
        number = (int(found[1]), int(found[2])) if found else None
        return cls(said, number if number is not None and number > (0, 1) else None)

    def at_least(self, major: int, minor: int) -> bool:
        """Whether it is this version or a later one."""
        return self.number is None or self.number >= (major, minor)

    @property
    def ids_by_chat(self) -> bool:
        """Whether the chat route takes `kv_transfer_params.prompt_token_ids`."""
        return self.at_least(0, 27)

    @property
    def chat_streams(self) -> bool:
        """Whether the chat route streams every id.

        Before 0.13 chunks in which a parser held everything back were dropped with their ids, before 0.31
        with their log-probabilities.
        """
        return self.at_least(0, 31)

    def streams(self, way: str) -> bool:
        """Whether a route of it may be streamed."""
        return self.chat_streams if way in ("chat", "tokens") else self.generate_streams

    @property
    def names_apart(self) -> bool:
        """Whether a streamed turn's log-probabilities can tell its ids.

        Up to 0.28 a chunk without ids had the log-probabilities of all before it once more, which only a list
        of ids beside them gives away. A server that hides its version may be such a one.
        """
        return self.number is not None and self.at_least(0, 29)

    @property
    def generates(self) -> bool:
        """Whether it has the generate route."""
        return self.at_least(0, 11)

    @property
    def generate_streams(self) -> bool:
        """Whether that route streams."""
        return self.at_least(0, 20)
