"""Find which tags of a completion's text were sampled as tokens, and which as letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from tito_io.engines.protocol import Rendering

from .hermes import Mark, Tags


class AsyncTokenizer(Protocol):
    """A tokenizer that is asked asynchronously."""

    async def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text alone, nothing added; the text of a special token is that token."""

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""


@attrs.frozen(kw_only=True)
class Completion:
    """What was sampled after a prompt.

    Attributes:
        prompt_ids: The prompt.
        ids: The sampled ids.
        text: Their text, special tokens included.
        whole: False where a stop string cut the text shorter than its ids.
        rendering: What the prompt was rendered with; without tools no text is read as a tool call. None where
            that is unknown.
    """

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    text: str
    whole: bool
    rendering: Rendering | None

    @property
    def may_call(self) -> bool:
        """Whether it may hold calls: there are tools, or it is unknown whether there are."""
        return self.rendering is None or bool(self.rendering.tools)


async def sampled_marks(tokenizer: AsyncTokenizer, tags: Tags, turn: Completion) -> list[Mark]:
    """Return the tags of a completion's text that were sampled as tokens.

    Where the text spells exactly the tags that were sampled, they are those. Otherwise letters spell some
    tags, or a stop string cut some off; then the ids between the sampled tags are decoded to see which.
    """
    if not tags.count(turn.text) or (turn.whole and tags.plain(turn.text, turn.ids)):
        return tags.marks(turn.text)
    texts = [await tokenizer.decode(run) if run else "" for run in tags.runs(turn.ids)]
    return tags.marks(turn.text, [tags.count(between) for between in texts])
