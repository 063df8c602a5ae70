"""The tokenizer of a model folder, for engines whose server renders and tokenizes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_io.families import Family


@attrs.frozen
class LocalTokenizer:
    """A model folder's tokenizer, in the form of `replies.output_parser.AsyncTokenizer`."""

    family: Family

    async def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text alone."""
        return self.family.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        return self.family.decode(ids)
