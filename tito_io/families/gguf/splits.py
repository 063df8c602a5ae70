"""Rules that split text before byte-level BPE, by their name in a GGUF file (`tokenizer.ggml.pre`).

A GGUF file holds only the name; llama.cpp has the rule in its source (`src/llama-vocab.cpp`). Its converter
finds the name by the ids of one text, so that a model may have the name and another normalizer. The names
here are those for which a vocabulary in use was compared with its own `tokenizer.json`; any other is refused.
The expressions are those of these files: llama.cpp's approximate some of them for characters beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer


@frozen
class Splitting:
    """How a text becomes the words that BPE merges within.

    Attributes:
        patterns: Regular expressions; each match, and what is between matches, is split further by the next.
        nfc: Whether the text is normalized to composed characters (NFC) first.
        ignore_merges: Whether a word that is a token is taken whole, whatever merges would make of it.
        gpt2: Whether GPT-2's own expression, which the library has built in, follows the patterns.
    """

    patterns: tuple[str, ...] = ()
    nfc: bool = False
    ignore_merges: bool = False
    gpt2: bool = False

    @property
    def normalizer(self) -> Normalizer | None:
        """What is done to the whole text first."""
        return normalizers.NFC() if self.nfc else None

    @property
    def pre_tokenizer(self) -> PreTokenizer:
        """What splits the text, and writes its bytes as the vocabulary does."""
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.gpt2)
        return pre_tokenizers.Sequence([*splits, letters])


_SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(digits: str) -> str:
    """Return the expression that cl100k introduced, with this one for digits."""
    return rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased_words(
    digits: str, *, short: str = "", slash: str = "/", upper: str = _UPPER, lower: str = _LOWER
) -> str:
    """Return the expression that o200k introduced, which splits before a capital letter."""
    first = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{first}{upper}*{lower}+{short}|{first}{upper}+{lower}*{short}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n{slash}]*|{_SPACES}"
    )


_NO_HAN = "&&[^\\p{Han}]]"
_LLAMA3 = Splitting((_words(r"\p{N}{1,3}"),), ignore_merges=True)
_QWEN2 = Splitting((_words(r"\p{N}"),), nfc=True)
_KIMI = _cased_words(
    r"\p{N}{1,3}", short=f"{_SHORT}?", slash="", upper=_UPPER[:-1] + _NO_HAN, lower=_LOWER[:-1] + _NO_HAN
)
_DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_CHINESE_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_QWEN35 = (
    rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
SPLITTINGS: Mapping[str, Splitting] = {
    "deepseek-v3": Splitting((r"\p{N}{1,3}", _CHINESE_AND_KANA, _DEEPSEEK)),
    "glm4": _LLAMA3,
    "gpt-4o": Splitting((_cased_words(r"\p{N}{1,3}", short=f"{_SHORT}?"),), ignore_merges=True),
    "kimi-k2": Splitting((rf"[\p{{Han}}]+|{_KIMI}",), ignore_merges=True),
    "llama-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "qwen35": Splitting((_QWEN35,), nfc=True),
    "smollm": Splitting((r"\p{N}",), gpt2=True),
    "tekken": Splitting((_cased_words(r"\p{N}"),), ignore_merges=True),
}
"""Rules by name."""
