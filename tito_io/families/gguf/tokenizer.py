"""Make a tokenizer of the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from tokenizers import AddedToken, Tokenizer, decoders, normalizers
from tokenizers.models import BPE

from tito_io.families.folder import FolderError
from tito_io.families.tokenizer import PANIC

from .metadata import integers, texts
from .splits import SPLITTINGS

MODEL, PRE = "tokenizer.ggml.model", "tokenizer.ggml.pre"
TOKENS, TYPES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
MERGES = "tokenizer.ggml.merges"
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
"""Types of tokens: special, added but not special, without a text (`llama_token_type` in llama.cpp)."""
FOLDER = "give the model's own folder with tokenizer.json instead"


@frozen
class Vocabulary:
    """The tokens of a GGUF file.

    Attributes:
        origin: The file, as errors name it.
        tokens: The tokens by id.
        types: Their types.
        merges: Pairs of tokens in the order in which BPE merges them.
    """

    origin: str
    tokens: Sequence[str]
    types: Sequence[int]
    merges: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, metadata: Mapping[str, Any], origin: str) -> Vocabulary:
        """Read the tokens; raises `FolderError` where they are missing or malformed."""
        tokens, types = texts(metadata, TOKENS, origin), integers(metadata, TYPES, origin)
        if len(types) != len(tokens):
            raise FolderError(f"{origin}: {TYPES} has {len(types)} values for {len(tokens)} tokens")
        merges = [_pair(merge, origin) for merge in texts(metadata, MERGES, origin)]
        known = cls(origin, tokens, types, merges)
        if len(known.ids) + known.types.count(UNUSED) != len(tokens):
            raise FolderError(f"{origin}: {TOKENS} has a token twice; {FOLDER}")
        return known

    @property
    def ids(self) -> dict[str, int]:
        """The ids of all tokens that have a text."""
        used = zip(self.tokens, self.types, strict=True)
        return {token: index for index, (token, kind) in enumerate(used) if kind != UNUSED}

    @property
    def added(self) -> list[AddedToken]:
        """The tokens that are found in a text before it is split."""
        return [
            AddedToken(token, special=kind == CONTROL, normalized=False)
            for token, kind in zip(self.tokens, self.types, strict=True)
            if kind in {CONTROL, USER_DEFINED}
        ]

    def bpe(self, **options: Any) -> Tokenizer:
        """Return a tokenizer without rules for splitting; `options` are those of the library's `BPE`."""
        try:
            tokenizer = Tokenizer(BPE(vocab=self.ids, merges=list(self.merges), **options))
        except BaseException as error:  # the library raises nothing more precise
            if not (isinstance(error, Exception) or type(error).__name__ == PANIC):
                raise
            raise FolderError(
                f"{self.origin}: its tokens and merges do not fit: {error}; {FOLDER}"
            ) from error
        tokenizer.add_tokens(self.added)
        return tokenizer


def make_tokenizer(metadata: Mapping[str, Any], origin: str) -> Tokenizer:
    """Return the tokenizer that a GGUF file describes; raises `FolderError` for a kind that is not exact."""
    kind = metadata.get(MODEL)
    if kind is None:
        raise FolderError(
            f"{origin}: has no tokenizer. Of a model in several files give the first; a projector has none"
        )
    if kind not in _KINDS:
        raise FolderError(f"{origin}: has a tokenizer of the kind {kind!r}: {_reason(kind)}; {FOLDER}")
    return _KINDS[kind](metadata, origin)


def _byte_level(metadata: Mapping[str, Any], origin: str) -> Tokenizer:
    """Return a tokenizer that merges the bytes of a text, as GPT-2's."""
    name = metadata.get(PRE)
    splitting = SPLITTINGS.get(str(name))
    if splitting is None:
        raise FolderError(
            f"{origin}: splits text by the rule {name!r} ({PRE}), and known are {', '.join(SPLITTINGS)};"
            f" {FOLDER}"
        )
    tokenizer = Vocabulary.of(metadata, origin).bpe(ignore_merges=splitting.ignore_merges)
    if splitting.normalizer is not None:
        tokenizer.normalizer = splitting.normalizer
    tokenizer.pre_tokenizer = splitting.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _spaced(metadata: Mapping[str, Any], origin: str) -> Tokenizer:
    """Return a tokenizer that merges characters over whole texts, with `▁` for a space, as Gemma 4's."""
    vocabulary = Vocabulary.of(metadata, origin)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    if not isinstance(unknown, int) or unknown >= len(vocabulary.tokens):
        raise FolderError(f"{origin}: has no unknown token, which this kind of tokenizer needs; {FOLDER}")
    tokenizer = vocabulary.bpe(byte_fallback=True, fuse_unk=True, unk_token=vocabulary.tokens[unknown])
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


_KINDS = {"gpt2": _byte_level, "gemma4": _spaced}


def _reason(kind: Any) -> str:
    """Return why no tokenizer of this kind is made."""
    if kind == "llama":
        return (
            "SentencePiece. The file has scores and no merges, and does not say what is done to white space"
            " beside special tokens"
        )
    return f"known are {', '.join(_KINDS)}"


def _pair(merge: str, origin: str) -> tuple[str, str]:
    """Return the two tokens of a merge. A token may begin with a space, which llama.cpp allows for."""
    cut = merge.find(" ", 1)
    if cut < 0:
        raise FolderError(f"{origin}: {MERGES} has {merge!r}, which is no pair of tokens; {FOLDER}")
    return merge[:cut], merge[cut + 1 :]
