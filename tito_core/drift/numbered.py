"""Compare ids with images: each id of a medium is replaced by a number that says which medium it is.

Two images of one size have the same ids, and a template writes a placeholder for either. In the numbered ids
another image is another number, and the ids of one image are one run of its number. A template's placeholders
are given the media of the messages in turn, with as many ids as the engine made of each. Where a message
tells no identity of a medium, such as of an image by URL, the call's range at its position does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby, repeat
from typing import Any, TypeAlias

import attrs

from ..errors import TemplateRefused
from ..ids import Ids
from ..media.ranges import MediaRange, places
from ..message import Message
from ..normalization.clean import lengthened
from ..normalization.media import Medium, asked, media_of
from ..samples.forest import Forest
from ..samples.media_tags import HIGHEST
from ..step import Step
from .diff import Packed, packed
from .renderer import Renderer

SIGN = "\ufffc"
"""The text of an id of a medium, for comparisons of texts: Unicode's sign for an object in a text."""
Name: TypeAlias = tuple[str, str | None]
"""Modality and identity of a medium."""


def has_all_ranges(step: Step) -> bool:
    """Return whether it is known where each medium of a prompt stands in its ids."""
    return bool(step.prompt.media == step.media.length)


@attrs.define
class NumberedMedia:
    """Renders messages, and reads ids, in which media are numbered.

    Attributes:
        renderer: Renders messages with bare kinds in place of media, and decodes ids of text.
        known: The first range of each medium in the conversation, by modality and identity.
        numbers: The number of each medium, by modality and identity.
        named: The same, by number.
        lists: Whether the template takes texts only as lists of parts; None until it was asked.
    """

    renderer: Renderer
    known: dict[Name, MediaRange] = attrs.field(factory=dict)
    numbers: dict[Name, int] = attrs.field(factory=dict)
    named: dict[int, Name] = attrs.field(factory=dict)
    lists: bool | None = None

    @classmethod
    def of(cls, renderer: Renderer, forest: Forest) -> NumberedMedia:
        """Return a renderer that knows the media of a conversation."""
        known: dict[Name, MediaRange] = {}
        for one in chain.from_iterable(call.step.media for call in forest.calls):
            known.setdefault((one.modality, one.identity), one)
        return cls(renderer, known)

    @property
    def markers(self) -> Collection[int]:
        """The ids that the template writes at the borders of turns."""
        return self.renderer.markers

    def used(self, ids: Ids, media: Iterable[MediaRange] = ()) -> Packed:
        """Return ids with numbers in place of those of media."""
        numbered = packed(ids.tolist())
        for one in media:
            number = self._number((one.modality, one.identity))
            numbered[one.offset : one.stop] = packed([number] * one.length)
        return numbered

    def ids(
        self,
        messages: Sequence[Message],
        key: str | None,
        *,
        add_generation_prompt: bool,
        ranges: Iterable[MediaRange] = (),
    ) -> Sequence[int]:
        """Return ids with numbers for media; if the placeholders are not one for each, as they are.

        `ranges` are the stored ones of the media in `messages`, in turn.
        """
        media = media_of(messages) if self.known else ()
        if not media:
            return self.renderer.ids(messages, key, add_generation_prompt=add_generation_prompt)
        bare = [asked(dict(message)) for message in messages]
        if self.lists is None and any(_listed(message) is not message for message in bare):
            self.lists = self._takes_lists(bare, key)
        if self.lists:
            bare = list(map(_listed, bare))
        return self._numbered(
            self.renderer.ids(bare, key, add_generation_prompt=add_generation_prompt), media, ranges
        )

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids; each id of a medium is a `SIGN`."""
        if not self.named:
            return self.renderer.text(ids)
        return "".join(SIGN * n if name else self.renderer.text(own) for name, own, n in self._runs(ids))

    def shown(self, ids: Sequence[int]) -> str:
        """Return the text of ids for readers: a medium is one word, however many ids it has."""
        return "".join(
            f"[{name[0]}]" if name else self.renderer.text(own) for name, own, _ in self._runs(ids)
        )

    def medium_at(self, ids: Packed, place: int) -> MediaRange | None:
        """Return the whole medium that the id at a position belongs to; None for an id of text."""
        name = self.named.get(ids[place]) if 0 <= place < len(ids) else None
        if name is None:
            return None
        start, stop = place, place + 1
        while start and ids[start - 1] == ids[place]:
            start -= 1
        while stop < len(ids) and ids[stop] == ids[place]:
            stop += 1
        modality, identity = name
        collapsed = self.known[name].collapsed if name in self.known else (0,)
        return MediaRange(
            modality=modality, identity=identity or "", offset=start, length=stop - start, collapsed=collapsed
        )

    def _number(self, name: Name) -> int:
        number = self.numbers.setdefault(name, HIGHEST - len(self.numbers))
        self.named[number] = name
        return number

    def _runs(self, ids: Sequence[int]) -> Iterator[tuple[Name | None, list[int], int]]:
        """Yield the ids of text, and those of each medium, in turn."""
        for number, run in groupby(ids, lambda index: index if index in self.named else None):
            own = list(run)
            yield (None if number is None else self.named[number]), own, len(own)

    def _numbered(
        self, ids: Sequence[int], media: Sequence[Medium], ranges: Iterable[MediaRange]
    ) -> Sequence[int]:
        """Return rendered ids with the numbers of `media` in place of placeholders."""
        found = self.placeholders(ids)
        if [name for _, _, name in found] != [one.modality for one in media]:
            return ids
        out: list[int] = []
        end = 0
        # Ranges may be fewer than media: an assistant's message may have media that no prompt showed.
        for (start, stop, _), one, seen in zip(found, media, chain(ranges, repeat(None)), strict=False):
            name = one.modality, one.identity or (seen.identity if seen else None)
            length = self.known[name].length if name in self.known else stop - start
            out += [*ids[end:start], *[self._number(name)] * length]
            end = stop
        return [*out, *ids[end:]]

    def placeholders(self, ids: Sequence[int]) -> list[tuple[int, int, str]]:
        """Return where placeholders stand and of which modality, the longest one where several begin."""
        runs = {(one.modality, one.collapsed) for one in self.known.values()}
        # Sorted by place, then the longest first; those inside of an earlier one are left out.
        found = sorted((place, -len(run), name) for name, run in runs for place in places(run, ids))
        kept: list[tuple[int, int, str]] = []
        for place, size, name in found:
            if not kept or place >= kept[-1][1]:
                kept.append((place, place - size, name))
        return kept

    def _takes_lists(self, messages: list[dict[str, Any]], key: str | None) -> bool:
        """Return whether a template writes texts only if they are lists of parts.

        Many templates for images do: they reject a text, or run over its letters and write none of them.
        """
        in_texts = self._rendered(messages, key)
        in_lists = self._rendered(list(map(_listed, messages)), key)
        if in_lists is None or in_texts in (None, in_lists):
            return in_lists is not None
        texts = [place for place, message in enumerate(messages) if _listed(message) is not message]
        return self._rendered(list(lengthened(messages, texts)), key) == in_texts

    def _rendered(self, messages: list[dict[str, Any]], key: str | None) -> list[int] | None:
        try:
            return list(self.renderer.ids(messages, key, add_generation_prompt=True))
        except TemplateRefused:
            return None


def _listed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its text as a list of one part. An empty one stays: templates ask for it."""
    text = message.get("content")
    if not text or not isinstance(text, str):
        return message
    return {**message, "content": [{"type": "text", "text": text}]}
