"""What sampled ids say: from ids to a message, whichever engine sampled them.

A vocabulary is all that is needed, and wherever it lies, on a server or in this process, it is asked the same
two questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import attrs

from tito_core import InputError

from . import harmony, hermes
from .harmony import ANY_MARKER, CALLS, END, MARKERS, MESSAGE, RETURN, START
from .hermes import TAGS, Mark, ParsedMessage, Tags


class Vocabulary(Protocol):
    """A tokenizer, somewhere."""

    async def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text alone, nothing added; the text of a special token is that token."""

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens too."""


class Speech(Protocol):
    """A manner of writing thoughts and tool calls."""

    async def ready(self) -> None:
        """Ask what must be known before a turn is sampled, so that none is lost to a later failure."""

    async def parsed(
        self, prompt_ids: Sequence[int], ids: Sequence[int], text: str, *, whole: bool, tools: bool
    ) -> ParsedMessage:
        """Return what a completion says.

        `text` is the completion's, special tokens too; `whole` is false where a stop string cut it shorter
        than its ids. Without `tools` there is nothing that it could call.
        """


@attrs.define
class Hermes:
    """The Hermes manner, as Qwen and many others write; see `hermes`."""

    vocabulary: Vocabulary
    known: Tags | None = None
    """What was asked before."""

    async def ready(self) -> None:
        """Ask what the vocabulary makes of the tags."""
        await self.tags()

    async def parsed(
        self, prompt_ids: Sequence[int], ids: Sequence[int], text: str, *, whole: bool, tools: bool
    ) -> ParsedMessage:
        """Return what a completion says."""
        tags = await self.tags()
        marks = await sampled_marks(self.vocabulary, tags, ids, text, whole=whole)
        return hermes.parse(text, marks, thinking=tags.thinking(prompt_ids), tools=tools)

    async def tags(self) -> Tags:
        """Return what the vocabulary makes of the tags and of line breaks."""
        if self.known is None:
            found = {text: await self.vocabulary.encode(text) for text in (*TAGS, "\n", "\n\n")}
            single = {text: ids[0] for text, ids in found.items() if len(ids) == 1}
            breaks = frozenset(index for text, index in single.items() if text not in TAGS)
            self.known = Tags({tag: single[tag] for tag in TAGS if tag in single}, breaks)
        return self.known


@attrs.define
class Harmony:
    """The harmony manner of gpt-oss; see `harmony`."""

    vocabulary: Vocabulary
    known: Tags | None = None
    """What was asked before."""

    async def ready(self) -> None:
        """Ask what the vocabulary makes of the markers."""
        await self.tags()

    async def spoken(self) -> bool:
        """Tell whether the vocabulary is one of this manner: each of its markers is a token there."""
        found = tuple(await self.vocabulary.encode("".join(MARKERS)))
        if len(found) == len(set(found)) == len(MARKERS):
            self.known = Tags(dict(zip(MARKERS, found, strict=True)), pattern=ANY_MARKER)
        return self.known is not None

    async def tags(self) -> Tags:
        """Return the markers' ids; raises `InputError` where they are no tokens."""
        if self.known is None and not await self.spoken():
            raise InputError("speech: the model's vocabulary has no harmony markers; it speaks otherwise")
        return cast("Tags", self.known)

    async def stop_ids(self) -> tuple[int, ...]:
        """Return the ids that end a turn, which servers do not add by themselves where ids are sent."""
        tags = await self.tags()
        return tags.ids[RETURN], tags.ids[CALLS]

    async def parsed(
        self, prompt_ids: Sequence[int], ids: Sequence[int], text: str, *, whole: bool, tools: bool
    ) -> ParsedMessage:
        """Return what a completion says."""
        tags = await self.tags()
        end = next((tag for tag in (RETURN, CALLS) if ids and ids[-1] == tags.ids[tag]), "")
        unended = (
            list(ids[:-1]) if end else list(ids)
        )  # servers leave the text of a stop id out, most of them
        said = text.removesuffix(end)
        marks = await sampled_marks(self.vocabulary, tags, unended, said, whole=whole)
        return harmony.parse(said, marks, opened=await self._opened(prompt_ids), end=end, tools=tools)

    async def _opened(self, prompt_ids: Sequence[int]) -> str:
        """Return the header of the message that the prompt leaves open, `<|message|>` and all if it has that.

        The usual one is a role and says nothing, so nobody is asked.
        """
        ids = (await self.tags()).ids
        tail: list[int] = []
        for index in reversed(prompt_ids):
            if index == ids[START]:
                return await self.vocabulary.decode(tail[::-1]) if len(tail) > 1 else ""
            if index in (ids[END], ids[CALLS], ids[RETURN]):
                break
            if index == ids[MESSAGE]:
                tail.clear()  # what follows it is no header
            tail.append(index)
        return ""


async def sampled_marks(
    vocabulary: Vocabulary, tags: Tags, ids: Sequence[int], text: str, *, whole: bool
) -> list[Mark]:
    """Return the tags of a completion's text that were sampled as tags.

    Where the text spells the very tags that were sampled, they are those. Else some were spelled out, or
    a stop string cut some off, and the vocabulary is asked what stands between the sampled ones.
    """
    if not tags.count(text) or (whole and tags.plain(text, ids)):
        return tags.marks(text)
    texts = [await vocabulary.decode(run) if run else "" for run in tags.runs(ids)]
    return tags.marks(text, [tags.count(between) for between in texts])
