"""The text of sampled ids that come in pieces, decoded in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

Decode = Callable[[Sequence[int]], str]
INCOMPLETE = "\ufffd"
"""What the ids of a part of a character are decoded to."""


@attrs.define
class TextStream:
    """The text of ids that come in pieces.

    A part of a character waits for the rest of it, and what may begin a stop string waits for what follows.

    Attributes:
        decode: Returns the text of ids.
        hold: How many characters wait, because a stop string may begin there.

    >>> stream = TextStream(lambda ids: "".join(map(chr, ids)), hold=1)
    >>> stream.add([72, 105, 33]), stream.end("Hi")
    ('Hi', '')
    """

    decode: Decode
    hold: int = 0
    _ids: list[int] = attrs.field(factory=list, init=False)
    _window: tuple[int, int] = attrs.field(default=(0, 0), init=False)
    _pending: str = attrs.field(default="", init=False)
    _sent: int = attrs.field(default=0, init=False)

    def add(self, ids: Sequence[int]) -> str:
        """Return the text that is certain now.

        Only a short window is decoded: ids whose text came before, as context, and the new ones.
        """
        self._ids += ids
        start, end = self._window
        before, text = self.decode(self._ids[start:end]), self.decode(self._ids[start:])
        if len(text) > len(before) and not text.endswith(INCOMPLETE):
            self._window = (end, len(self._ids))
            self._pending += text[len(before) :]
        ready = self._pending[: max(len(self._pending) - self.hold, 0)]
        self._pending = self._pending[len(ready) :]
        self._sent += len(ready)
        return ready

    def end(self, text: str) -> str:
        """Return the rest of the whole turn's `text`."""
        return text[self._sent :]

    def end_by_id(self, ids: Sequence[int], *, stopped: bool) -> str:
        """Add the last ids of a turn and return the rest of its text; a stop token has no text.

        >>> stream = TextStream(lambda ids: "".join(map(chr, ids)))
        >>> stream.add([72]), stream.end_by_id([105, 0], stopped=True)
        ('H', 'i')
        """
        self._ids += ids
        return self.end(self.decode(self._ids[:-1] if stopped else self._ids))
