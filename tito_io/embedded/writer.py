"""Ids to text, one id at a time, with the stop strings looked for on the way.

A character comes when its last byte has come. Text that could still become a stop string is held back.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from .sampling import Sampling

PRIMED = 8
"""How many ids of the prompt the decoder sees first: enough to finish a character that the prompt began."""


class Writer:
    """The text of one reply, while it grows."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], sampling: Sampling) -> None:
        """Begin after `prompt`."""
        self.text = ""
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._stream = DecodeStream(list(prompt[-PRIMED:]), sampling.skip_special)
        self._given = 0
        longest = max((len(stop) for stop in sampling.stop), default=1)
        self._held = 0 if sampling.keep_stop else longest - 1

    def write(self, identifier: int) -> str | None:
        """Add an id; return the stop string that its text completes, if any, cut off already."""
        known = len(self.text)
        self.text += self._stream.step(self._tokenizer, identifier) or ""
        return self._stopped(known) if len(self.text) > known else None

    def take(self, *, finished: bool) -> str:
        """Return the text that was not returned before and can no longer change."""
        end = len(self.text) if finished else max(len(self.text) - self._held, self._given)
        taken, self._given = self.text[self._given : end], max(end, self._given)
        return taken

    def _stopped(self, known: int) -> str | None:
        """Look for the stop string that ends first, in text that is new or touches what is."""
        ends = {stop: self._end(stop, known) for stop in self._sampling.stop}
        found = min((stop for stop in ends if ends[stop] >= 0), key=lambda stop: ends[stop], default=None)
        if found is not None:
            self.text = self.text[: ends[found] - (0 if self._sampling.keep_stop else len(found))]
        return found

    def _end(self, stop: str, known: int) -> int:
        """Return where `stop` ends for the first time at or after the new text, or -1."""
        place = self.text.find(stop, max(known - len(stop) + 1, 0))
        return -1 if place < 0 else place + len(stop)
