"""Which tags of a completion's text were sampled as tokens, and which are letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .hermes import Mark, Tags


class AsyncTokenizer(Protocol):
    """A tokenizer that is asked asynchronously."""

    async def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text alone, nothing added; the text of a special token is that token."""

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""


async def sampled_marks(
    tokenizer: AsyncTokenizer, tags: Tags, ids: Sequence[int], text: str, *, whole: bool
) -> list[Mark]:
    """Return the tags of a completion's text that were sampled as tokens.

    Where the text spells exactly the tags that were sampled, they are those. Otherwise letters spell some
    tags, or a stop string cut some off; then the ids between the sampled tags are decoded to see which.
    """
    if not tags.count(text) or (whole and tags.plain(text, ids)):
        return tags.marks(text)
    texts = [await tokenizer.decode(run) if run else "" for run in tags.runs(ids)]
    return tags.marks(text, [tags.count(between) for between in texts])
