"""Ids that end a turn are those at which llama.cpp stops (`src/llama-vocab.cpp`, `special_eog_ids`)."""

from __future__ import annotations

from typing import Any

import pytest

from tito_io.families.gguf.end_tokens import end_ids
from tito_io.families.gguf.tokenizer import MERGES, TOKENS, TYPES, Vocabulary


@pytest.mark.parametrize(
    ("tokens", "named", "ends"),
    [
        (["a", "<|im_end|>", "<|endoftext|>"], {"eos": 2}, (2, 1)),
        (["a", "b", "c"], {"eos": 1, "eot": 2, "eom": 0}, (1, 2, 0)),
        (["a", "<|eom_id|>"], {"eos": 7}, (1,)),
        (["<|end|>", "<|endoftext|>"], {}, (0, 1)),
        (["<|end|>", "<|return|>", "<|call|>"], {"eos": 1}, (1, 2)),
        (["<|end|>", "<|calls|>", "<|flush|>"], {}, (2, 1)),
        (["</s>", "a"], {}, (0,)),
        (["</s>", "<|tool_response>"], {}, (1,)),
        (["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"], {}, (0, 1, 2)),
        (["<|fim_pad|>", "b"], {"fim_pad": 1}, (1,)),
        (["a"], {}, ()),
    ],
)
def test_ends_are_named_by_the_file_or_known_by_their_text(
    tokens: list[str], named: dict[str, int], ends: tuple[int, ...]
) -> None:
    metadata: dict[str, Any] = {f"tokenizer.ggml.{key}_token_id": index for key, index in named.items()}
    assert end_ids(metadata, tokens) == ends


def test_a_token_of_a_merge_may_begin_with_a_space() -> None:
    metadata = {TOKENS: ["a", "b", " "], TYPES: [1, 1, 1], MERGES: ["a b", "  b"]}
    assert Vocabulary.of(metadata, "m.gguf").merges == [("a", "b"), (" ", "b")]
