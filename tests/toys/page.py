"""What a toy template writes on, and the private side channel that tells the oracle where turns end."""

from __future__ import annotations


class Page:
    """Text, with the place of each message's own words in it.

    `bodies[i]` is the half-open range of characters that message `i` itself put there. A template that
    loses a message, or part of one, says so in `lost`. The kernel under test never sees a page.
    """

    def __init__(self) -> None:
        """Begin with an empty page."""
        self._pieces: list[str] = []
        self._length = 0
        self.bodies: dict[int, tuple[int, int]] = {}
        self.lost: set[int] = set()

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self._pieces)

    def write(self, text: str) -> None:
        """Write what the template says by itself."""
        self._pieces.append(text)
        self._length += len(text)

    def body(self, index: int, text: str) -> None:
        """Write the words of message `index`."""
        start = self._length
        self.write(text)
        self.bodies[index] = (start, self._length)

    def lose(self, index: int) -> None:
        """Admit that message `index`, or something it said, is not on the page."""
        self.lost.add(index)
