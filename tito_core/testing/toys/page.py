"""The text that a toy template writes, and the position of each message's text in it."""

from __future__ import annotations


class Page:
    """Rendered text with the place of each message in it.

    A template that drops a message, or a part of one, adds its index to `lost`. Code under test gets ids.

    Attributes:
        bodies: By index of the message: the half-open range of characters that the message itself wrote.
        lost: Indices of messages that are not, or not wholly, in the text.
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
        """Write text of the template."""
        self._pieces.append(text)
        self._length += len(text)

    def body(self, index: int, text: str) -> None:
        """Write text of the message at `index`."""
        start = self._length
        self.write(text)
        self.bodies[index] = (start, self._length)

    def lose(self, index: int) -> None:
        """Record that the message at `index` is not wholly in the text."""
        self.lost.add(index)
