"""Tag the ids of media, because different media may have the same ids.

Two images of one size have equal ids. A call that continues another must show the same images, so that the
tree of ids is built of ids in which the first id of each medium says which one it is.
"""

from __future__ import annotations

from array import array

from ..ids import PACKED, Ids
from ..media.ranges import Media, MediaRange

HIGHEST = 2**32 - 1
"""Tags are counted from here downwards; no vocabulary is so large."""


class MediaTags:
    """Numbers for media, in order of appearance.

    >>> cat, dog = (MediaRange(modality="image", identity=name, offset=1, length=2, collapsed=(7,))
    ...             for name in ("cat", "dog"))
    >>> tags, ids = MediaTags(), Ids.of([5, 7, 7, 6])
    >>> tags.tagged(ids, Media.of([cat])) == tags.tagged(ids, Media.of([dog]))
    False
    >>> len(tags.tagged(ids, Media.of([cat])))
    4
    """

    def __init__(self) -> None:
        """Start without media."""
        self._numbers: dict[tuple[str, str, int], int] = {}
        # Holding the link keeps it alive: a freed object's `id` could be given to another one.
        self._known: dict[tuple[int, tuple[int, ...]], tuple[Ids, Ids]] = {}

    def tagged(self, ids: Ids, media: Media) -> Ids:
        """Return `ids` with a tag in place of each medium's first id; as they are without media.

        What earlier ids share, these share, too.
        """
        if not media:
            return ids
        ranges, tagged, seen = iter([*media, None]), None, tuple[int, ...]()
        one = next(ranges)
        for link in list(ids.links())[::-1]:
            part = array(PACKED, link.part)
            start = link.length - len(part)
            while one is not None and one.offset < link.length:
                tag = self._number(one)
                part[one.offset - start] = tag
                seen = (*seen, tag)
                one = next(ranges)
            known = self._known.setdefault((id(link), seen), (link, Ids(part, tagged)))
            tagged = known[1]
        return ids if tagged is None else tagged

    def _number(self, one: MediaRange) -> int:
        key = (one.modality, one.identity, one.length)
        return HIGHEST - self._numbers.setdefault(key, len(self._numbers))
