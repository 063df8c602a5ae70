"""Read a GGUF file as a model folder is read: tokenizer, special tokens, chat templates and stop ids."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from tokenizers import Tokenizer

from tito_io.families.folder import LARGEST_TEMPLATE, Folder, FolderError, Source, local_path

from .end_tokens import end_ids
from .metadata import read_metadata, texts
from .tokenizer import TOKENS, make_tokenizer

TEMPLATE = "tokenizer.chat_template"
_NAMED = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad", "seperator": "sep", "mask": "mask"}
"""Names of special tokens in transformers by those in GGUF files; `seperator` is how the format spells it."""


@frozen(eq=False)
class GgufModel:
    """The data of a GGUF file that decide text and ids.

    Attributes:
        folder: Its chat templates and stop ids, as those of a model folder.
        tokenizer: Its tokenizer.
        special_tokens: `bos_token`, `eos_token` and others by name.
    """

    folder: Folder
    tokenizer: Tokenizer
    special_tokens: Mapping[str, str]

    @classmethod
    def read(cls, path: str | Path) -> GgufModel:
        """Read the file at `path`; raises `FolderError` for what is missing, malformed or not exact."""
        file = local_path(path, "a GGUF file")
        metadata = read_metadata(file)
        tokenizer = make_tokenizer(metadata, str(file))
        tokens = texts(metadata, TOKENS, str(file))
        folder = Folder(file, {}, {}, end_ids(metadata, tokens), _templates(metadata, file))
        return cls(folder, tokenizer, _special_tokens(metadata, tokens))


def _special_tokens(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, str]:
    """Return the texts of the named special tokens. llama.cpp ignores ids out of range, too."""
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for key, name in _NAMED.items()}
    return {
        f"{name}_token": tokens[index]
        for name, index in ids.items()
        if isinstance(index, int) and 0 <= index < len(tokens)
    }


def _templates(metadata: Mapping[str, Any], file: Path) -> dict[str, Source]:
    """Return the chat templates by name; `tokenizer.chat_template` is the default one."""
    found: dict[str, Source] = {}
    for key, value in metadata.items():
        if key != TEMPLATE and not key.startswith(f"{TEMPLATE}."):
            continue
        if not isinstance(value, str) or len(value) > LARGEST_TEMPLATE:
            raise FolderError(f"{file}: {key} must be a text of at most {LARGEST_TEMPLATE} characters")
        name = key.removeprefix(TEMPLATE).removeprefix(".") or "default"
        found[name] = Source(value, f"{file}#{key}")
    return dict(sorted(found.items()))
