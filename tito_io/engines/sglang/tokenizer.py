"""The vocabulary of an SGLang server's model, asked for over the wire."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check
from tito_io.engines.wire import Wire

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


@attrs.frozen
class ServedVocabulary:
    """A server's tokenizer; it has one, whatever its models are called."""

    wire: Wire

    async def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text alone."""
        answer = await self.wire.post(TOKENIZE, {"prompt": text, "add_special_tokens": False})
        return self._check(TOKENIZE, answer).ids(answer, "tokens")

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens too, which the server leaves out unless told not to."""
        answer = await self.wire.post(DETOKENIZE, {"tokens": list(ids), "skip_special_tokens": False})
        return self._check(DETOKENIZE, answer).get(answer, "text", str)

    def _check(self, path: str, answer: object) -> Check:
        return Check(self.wire.where("POST", path), EngineAnswer(200, answer))
