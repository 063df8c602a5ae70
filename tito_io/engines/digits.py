"""Write prompt ids as JSON: for each turn, only the new ids of a conversation.

A prompt shares its beginning with the one before it, as links of one chain (`Ids`). So the body that was sent
last is kept as long as its conversation is, and the next one is a copy of it with what is new. Two prompts
that continue one turn share no body: the second is written anew, once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from weakref import ref

import attrs
import orjson

from tito_core import Ids


class PartRef(ref["array[int]"]):
    """A weak reference to a part of ids, and the key under which the part's text is kept."""

    __slots__ = ("key",)
    key: int


@attrs.frozen
class Written:
    """The JSON of ids up to a link.

    Attributes:
        part_ref: The link's part. With its parent it identifies the link, to which no weak reference exists.
        parent: The link before it; None for the first.
        text: The ids as JSON, without brackets.
        top: The largest of the ids.
    """

    part_ref: PartRef
    parent: Ids | None
    text: memoryview | bytes
    top: int


@attrs.define
class Digits:
    """The texts that were written, by the address of their last part, which is unique while the part exists.

    Only packed parts, those of a trajectory, can be referenced weakly; others are written each time.

    >>> digits, prompt = Digits(), Ids.of([5, 6]).packed()
    >>> digits.write(b"[", prompt, b"]"), digits.write(b"[", prompt.then((7, 8)), b"]")
    (b'[5,6]', b'[5,6,7,8]')
    """

    _known: dict[int, Written] = attrs.field(factory=dict)

    def largest(self, ids: Ids) -> int:
        """Return the largest id; -1 for no ids."""
        base, new = self._since(ids)
        return _top(base, new)

    def write(self, before: bytes, ids: Ids, after: bytes) -> bytes:
        """Return the JSON of ids, with commas and no brackets, between two texts."""
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
        """Return the longest prefix of ids that was written before, and the links after it, oldest first."""
        new: list[Ids] = []
        for link in ids.links():
            written = self._known.get(id(link.part))
            if written is not None and written.part_ref() is link.part and written.parent is link.parent:
                return written, new[::-1]
            if link.part:
                new.append(link)
        return None, new[::-1]

    def _keep(self, base: Written | None, new: Sequence[Ids], text: memoryview) -> None:
        """Keep the text that ends with the last of these links, in place of the text before them."""
        part = new[-1].part
        assert isinstance(part, array)  # noqa: S101  # `write` passes packed links
        part_ref = PartRef(part, self._gone)
        part_ref.key = id(part)
        self._known[part_ref.key] = Written(part_ref, new[-1].older, text, _top(base, new))
        if base is not None:
            self._known.pop(base.part_ref.key, None)

    def _gone(self, part_ref: ref[array[int]]) -> None:
        """Drop the text that ends with a part."""
        assert isinstance(part_ref, PartRef)  # noqa: S101  # `_keep` made it
        self._known.pop(part_ref.key, None)


def _digits(part: Sequence[int]) -> bytes:
    """Return the JSON of a part, without brackets."""
    return orjson.dumps(part.tolist() if isinstance(part, array) else tuple(part))[1:-1]


def _top(base: Written | None, new: Sequence[Ids]) -> int:
    return max((-1 if base is None else base.top, *(max(link.part) for link in new)))
