"""The vocabulary of a model folder, asked in this process: for engines that render and detokenize nothing."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_io.families.family import Family


@attrs.frozen
class LocalVocabulary:
    """A model folder's tokenizer, as `speech.Vocabulary` wants one."""

    family: Family

    async def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text alone."""
        return self.family.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens too."""
        return self.family.decode(ids)

    def shown(self, ids: Sequence[int]) -> str:
        """Return the text of ids as servers show it, special tokens left out."""
        return self.family.tokenizer.decode(list(ids), skip_special_tokens=True)
