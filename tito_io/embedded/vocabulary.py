"""A byte-level BPE vocabulary, trained here at first use and then kept.

Three tokens are special (a decoder may skip them), six are added but not special (a decoder keeps them, a
parser consumes them); the rest are bytes and merges of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache

from attrs import frozen
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .corpus import corpus

OPEN, CLOSE, OVER = "<|turn|>", "<|done|>", "<|over|>"
"""A turn's beginning, its end, and the end of all text: an end token that no turn is closed with."""
THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
RESPONSE, RESPONDED = "<tool_response>", "</tool_response>"
SPECIAL = (OVER, OPEN, CLOSE)
TAGS = (THINK, THOUGHT, CALL, CALLED, RESPONSE, RESPONDED)
PIECES = 2000
"""Bytes and merges; the nine named tokens come after them."""

# Punctuation takes the newlines after it, so a merge can lie across what a template writes in two steps.
SPLIT = r"\p{N}{1,3}| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?=\S)|\s+"


@frozen
class Vocabulary:
    """The tokenizer and what the sampler has to know of its inside."""

    tokenizer: Tokenizer
    """Text to ids as an engine does it: the nine named tokens are found in the text."""
    plain: Tokenizer
    """The same merges without the named tokens: `<think>` becomes the ids of seven characters or fewer."""
    halves: Mapping[int, tuple[int, int]]
    """A merged id to the two ids that it was merged from."""

    @property
    def size(self) -> int:
        """Return how many ids there are; every id is below it."""
        return self.tokenizer.get_vocab_size()

    def id(self, token: str) -> int:
        """Return the id of a named token, such as `CLOSE`."""
        found = self.tokenizer.token_to_id(token)
        assert found is not None, token  # noqa: S101  # only the tokens named in this file are asked for
        return int(found)

    def spelled(self, text: str) -> list[int]:
        """Return `text` in merges alone, a tag in it spelled out like any other word."""
        return list(self.plain.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str) -> list[int]:
        """Return the canonical ids of `text`."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` with every special token in it."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def bytes_of(self, identifier: int) -> list[int]:
        """Return the single-byte ids that a merged id is made of."""
        if identifier not in self.halves:
            return [identifier]
        return [byte for half in self.halves[identifier] for byte in self.bytes_of(half)]


@cache
def vocabulary() -> Vocabulary:
    """Train the vocabulary, or return the one that was trained before in this process."""
    plain = _trained()
    tokenizer = Tokenizer.from_str(plain.to_str())
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return Vocabulary(tokenizer, plain, _halves(plain))


def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=PIECES, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def _halves(tokenizer: Tokenizer) -> dict[int, tuple[int, int]]:
    model = json.loads(tokenizer.to_str())["model"]
    ids, merges = model["vocab"], model["merges"]
    return {ids[left + right]: (ids[left], ids[right]) for left, right in merges}
