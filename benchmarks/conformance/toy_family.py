"""The toy tokenizer of a vector as a tokenizer of transformers, with the vector's chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

BYTES = 256


def alphabet() -> dict[int, str]:
    """Return the characters by which byte-level tokenizers write bytes.

    >>> alphabet()[97], alphabet()[32]
    ('a', 'Ġ')
    """
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(BYTES) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(BYTES + place) for place, byte in enumerate(others)
    }


def backend(data: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of a vector: it splits texts into tokens, longest first, and characters."""
    written = alphabet()
    vocabulary = {written[byte]: byte for byte in range(BYTES)}
    for text, number in data["tokens"].items():
        vocabulary["".join(written[byte] for byte in text.encode())] = number
    tokenizer = Tokenizer(
        models.WordPiece(vocab=vocabulary, unk_token=written[0], continuing_subword_prefix="")
    )
    longest_first = sorted(data["tokens"], key=len, reverse=True)
    pieces = "|".join([*map(re.escape, longest_first), r"[\s\S]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    in_order = sorted(data["special"], key=lambda text: int(data["special"][text]))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in in_order])
    return tokenizer


def hf_tokenizer(question: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a question; its end of sequence is the first known stop."""
    special = {number: text for text, number in question["tokenizer"]["special"].items()}
    stops = [special[number] for number in question["stop_ids"] if number in special]
    build: Any = PreTrainedTokenizerFast
    tokenizer = build(
        tokenizer_object=backend(question["tokenizer"]),
        eos_token=stops[0] if stops else "<|im_end|>",
        pad_token="<|endoftext|>",  # noqa: S106  # no password
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = question["template"]
    return tokenizer
