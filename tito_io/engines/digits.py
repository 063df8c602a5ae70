"""The digits that ids are written in: of a conversation's ids, those that a turn adds and no more.

A prompt shares with the one before it whatever both begin with, as links of one chain. So the body that was
sent last is kept for as long as its conversation is, and the next one is a copy of it with what is new. Two
prompts that go on from one turn share no body: the second is written anew, once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from weakref import ref

import attrs
import orjson

from tito_core import Ids


class Held(ref["array[int]"]):
    """A part that may go away, and the name that it is known by."""

    __slots__ = ("name",)
    name: int


@attrs.frozen
class Written:
    """Ids as far as a link, in digits."""

    held: Held
    """The link's part: with its parent it is the link, which nothing can refer to weakly."""
    parent: Ids | None
    text: memoryview | bytes
    top: int
    """The largest of the ids."""


@attrs.define
class Digits:
    """What was written, by the address of the last part: it is the part's own for as long as that is held.

    Only packed parts can say that they go, which are those of a trajectory; others are written each time.

    >>> digits, prompt = Digits(), Ids.of([5, 6]).packed()
    >>> digits.write(b"[", prompt, b"]"), digits.write(b"[", prompt.then((7, 8)), b"]")
    (b'[5,6]', b'[5,6,7,8]')
    """

    _known: dict[int, Written] = attrs.field(factory=dict)

    def largest(self, ids: Ids) -> int:
        """Return the largest id, -1 where there is none."""
        base, new = self._since(ids)
        return _top(base, new)

    def write(self, before: bytes, ids: Ids, after: bytes) -> bytes:
        """Return the digits of ids between two texts, with commas."""
        base, new = self._since(ids)
        texts = [b"," + _digits(link.part) for link in new]
        if base is None and texts:
            texts[0] = texts[0][1:]
        body = b"".join((before, base.text if base else b"", *texts, after))
        packed = max((place for place, link in enumerate(new, 1) if isinstance(link.part, array)), default=0)
        if packed:
            begin, rest = len(before), sum(map(len, texts[packed:]))
            self._keep(base, new[:packed], memoryview(body)[begin : len(body) - len(after) - rest])
        return body

    def _since(self, ids: Ids) -> tuple[Written | None, list[Ids]]:
        """Return what was written of ids, and the links after it, oldest first."""
        new: list[Ids] = []
        for link in ids.links():
            found = self._known.get(id(link.part))
            if found is not None and found.held() is link.part and found.parent is link.parent:
                return found, new[::-1]
            if link.part:
                new.append(link)
        return None, new[::-1]

    def _keep(self, base: Written | None, new: Sequence[Ids], text: memoryview) -> None:
        """Keep what ends with the last of these links, in place of what they follow."""
        part = new[-1].part
        assert isinstance(part, array)  # noqa: S101  # so it was chosen
        held = Held(part, self._gone)
        held.name = id(part)
        self._known[held.name] = Written(held, new[-1].older, text, _top(base, new))
        if base is not None:
            self._known.pop(base.held.name, None)

    def _gone(self, held: ref[array[int]]) -> None:
        """Forget what ends with a part."""
        assert isinstance(held, Held)  # noqa: S101  # so it was made
        self._known.pop(held.name, None)


def _digits(part: Sequence[int]) -> bytes:
    """Return digits without brackets."""
    return orjson.dumps(part.tolist() if isinstance(part, array) else tuple(part))[1:-1]


def _top(base: Written | None, new: Sequence[Ids]) -> int:
    return max((-1 if base is None else base.top, *(max(link.part) for link in new)))
