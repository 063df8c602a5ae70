"""The vocabulary of a vLLM server's model, asked for over the wire."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check
from tito_io.engines.wire import Wire

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


@attrs.frozen
class ServedVocabulary:
    """One model's tokenizer, on its server."""

    wire: Wire
    model: str
    vocab_size: int | None

    async def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text alone."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        answer = await self.wire.post(TOKENIZE, body)
        return self._check(TOKENIZE, answer).ids(answer, "tokens")

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens too."""
        answer = await self.wire.post(DETOKENIZE, {"model": self.model, "tokens": list(ids)})
        return self._check(DETOKENIZE, answer).get(answer, "prompt", str)

    def _check(self, path: str, answer: object) -> Check:
        return Check(self.wire.where("POST", path), EngineAnswer(200, answer), self.vocab_size)
