"""What a vLLM server's vocabulary makes of texts and ids, asked for over the wire."""

from __future__ import annotations

import attrs

from .hermes import TAGS, Mark, Tags
from .invariants import Check
from .protocol import Answer, Reply
from .wire import Wire

TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"


@attrs.define
class Vocabulary:
    """The vocabulary of one model."""

    wire: Wire
    vocab_size: int | None
    known: dict[str, Tags] = attrs.field(factory=dict)
    """What was asked before, by model."""

    async def tags(self, model: str) -> Tags:
        """Return what the vocabulary makes of the tags and of line breaks."""
        if model not in self.known:
            found = {text: await self.ids(model, text) for text in (*TAGS, "\n", "\n\n")}
            single = {text: ids[0] for text, ids in found.items() if len(ids) == 1}
            breaks = frozenset(index for text, index in single.items() if text not in TAGS)
            self.known[model] = Tags({tag: single[tag] for tag in TAGS if tag in single}, breaks)
        return self.known[model]

    async def marks(self, model: str, reply: Reply) -> list[Mark]:
        """Return the tags of a completion's text that were sampled as tags.

        Where the text spells the very tags that were sampled, they are those. Else some were spelled out, or
        a stop string cut some off, and the server is asked what stands between the sampled ones.
        """
        tags = await self.tags(model)
        cut = isinstance(reply.raw["choices"][0].get("stop_reason"), str)
        if not tags.count(reply.text) or (not cut and tags.plain(reply.text, reply.completion_ids)):
            return tags.marks(reply.text)
        texts = [await self.text(model, run) for run in tags.runs(reply.completion_ids)]
        return tags.marks(reply.text, [tags.count(text) for text in texts])

    async def ids(self, model: str, text: str) -> tuple[int, ...]:
        """Return the ids of a text alone."""
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        answer = await self.wire.post(TOKENIZE, body)
        return self._check(TOKENIZE, answer).ids(answer, "tokens")

    async def text(self, model: str, ids: list[int]) -> str:
        """Return the text of ids, special tokens too."""
        if not ids:
            return ""
        answer = await self.wire.post(DETOKENIZE, {"model": model, "tokens": ids})
        return self._check(DETOKENIZE, answer).get(answer, "prompt", str)

    def _check(self, path: str, answer: object) -> Check:
        return Check(self.wire.where("POST", path), Answer(200, answer), self.vocab_size)
