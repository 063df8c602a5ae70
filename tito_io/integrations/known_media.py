"""Remember the places of images in recent prompts, for frameworks that pass ids without ranges."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from threading import Lock

from attrs import field, frozen

from tito_core import Refusal
from tito_core.media.ranges import MediaRange

PACKED = "q"
Known = tuple[MediaRange, ...] | Refusal
"""Where the images of a prompt stand, or why that is not known."""


@frozen(eq=False)
class KnownMedia:
    """Finds the image ranges of ids that begin with a known prompt. Threads may share it.

    Attributes:
        most: How many prompts are kept; the oldest is dropped first.

    >>> known = KnownMedia(most=1)
    >>> known.keep([1, 2], ())
    >>> known.find([1, 2, 3]), known.find([1, 3]) is None
    ((), True)
    """

    most: int = 64
    _kept: deque[tuple[array[int], Known]] = field(factory=deque, init=False, repr=False)
    _lock: Lock = field(factory=Lock, init=False, repr=False)

    def keep(self, ids: Sequence[int], media: Known) -> None:
        """Keep where the images of a prompt stand."""
        with self._lock:
            self._kept.append((array(PACKED, ids), media))
            while len(self._kept) > self.most:
                self._kept.popleft()

    def find(self, ids: Sequence[int]) -> Known | None:
        """Return the images of the longest kept prompt that `ids` begin with; None without one."""
        packed = array(PACKED, ids)
        with self._lock:
            found = [one for one in self._kept if packed[: len(one[0])] == one[0]]
        return max(found, key=lambda one: len(one[0]))[1] if found else None
