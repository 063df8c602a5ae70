"""A tokenizer on the engine's server, behind the routes `/tokenize` and `/detokenize`.

vLLM and SGLang both have these routes; their bodies differ in a few keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from .errors import refused_by_template
from .protocol import EngineAnswer, RequestError
from .replies.invariants import Check
from .wire import Wire

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


@attrs.frozen(kw_only=True)
class ServedTokenizer:
    """The tokenizer and the chat template of one model on its server.

    Attributes:
        wire: The server.
        encode_keys: Keys of every `/tokenize` request for a text, besides `prompt`.
        decode_keys: Keys of every `/detokenize` request, besides `tokens`.
        text_key: The key of the text in the answer of `/detokenize`.
        vocab_size: How many ids there are; None where it is unknown.
    """

    wire: Wire
    encode_keys: Mapping[str, Any]
    decode_keys: Mapping[str, Any]
    text_key: str
    vocab_size: int | None = None

    async def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of a text, without special tokens around it."""
        return await self._ids({**self.encode_keys, "prompt": text, "add_special_tokens": False})

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        answer = await self.wire.post(DETOKENIZE, {**self.decode_keys, "tokens": list(ids)})
        return self._check(DETOKENIZE, answer).get(answer, self.text_key, str)

    async def render(self, body: Mapping[str, Any], own_errors: re.Pattern[str]) -> list[int]:
        """Return the ids of the messages in `body`.

        The server answers 400 to whatever a chat template raises, in the envelope of its own errors;
        `own_errors` are the texts of those.

        Raises:
            TemplateRefused: The chat template rejects the messages.
        """
        try:
            return list(await self._ids(body))
        except RequestError as error:
            refusal = refused_by_template(error, own_errors)
            if refusal is None:
                raise
            raise refusal from error

    async def _ids(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        answer = await self.wire.post(TOKENIZE, body)
        return self._check(TOKENIZE, answer).ids(answer, "tokens")

    def _check(self, path: str, answer: object) -> Check:
        return Check(self.wire.where("POST", path), EngineAnswer(200, answer), self.vocab_size)
