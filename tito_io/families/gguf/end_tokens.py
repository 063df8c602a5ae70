"""Find the tokens of a GGUF file that end a turn: those at which llama.cpp stops sampling.

A GGUF file has no list of them. llama.cpp finds most by their text (`src/llama-vocab.cpp`), and its server
cannot be asked for another choice, so that a turn may end with any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
"""Parts of the keys that hold an id, as in `tokenizer.ggml.eos_token_id`."""
TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "[e~[",
)
MIDDLE_TEXTS = (
    ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("<|file_sep|>",),
)
"""Tokens of code completion that end a turn, too, one of each group."""
NOT_THE_END = (
    ("<|end|>", ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"}, {"<|call|>", "<|flush|>"})),
    ("</s>", ({"<|tool_response>"},)),
)
"""Tokens that end no turn where all tokens of one of the sets exist."""


def end_ids(metadata: Mapping[str, Any], tokens: Sequence[str]) -> tuple[int, ...]:
    """Return the ids that end a turn: first the file's own, then those that are known by their text."""
    named = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in KEYS]
    known = [index for index in named if isinstance(index, int) and 0 <= index < len(tokens)]
    ids = {token: index for index, token in enumerate(tokens)}
    continued = {text for text, sets in NOT_THE_END if any(one <= ids.keys() for one in sets)}
    by_text = [ids[text] for text in TEXTS if text in ids and text not in continued]
    return tuple(dict.fromkeys([*known, *by_text, *_code_completion(metadata, ids)]))


def _code_completion(metadata: Mapping[str, Any], ids: Mapping[str, int]) -> list[int]:
    """Return the ids of `MIDDLE_TEXTS`, each unless the file has a key for it."""
    found = []
    for key, group in zip(KEYS[-len(MIDDLE_TEXTS) :], MIDDLE_TEXTS, strict=True):
        if f"tokenizer.ggml.{key}_token_id" not in metadata:
            found += [ids[text] for text in group if text in ids][:1]
    return found
