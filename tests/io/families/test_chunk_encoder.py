"""Texts that are encoded in pieces have the ids and places that the tokenizer gives them whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from tests.model_folders import FAMILIES, needs_families
from tito_core import InputError
from tito_io.embedded.vocabulary import vocabulary
from tito_io.families.chunk_encoder import ChunkEncoder, longest_of
from tito_io.families.folder import Folder
from tito_io.families.tokenizer import load_tokenizer

TOKENS = ("<a>", "<ab>", "<a>b", "</s>", " <mask>", "<end>\n", "[X]", "wo", "\n\n")
WORDS = ("word", "<", "a", ">b", " ", "  ", "\n", "A", "é", "wo", "s>", "x1", "<ab", "東")
REAL = ("llama3", "phi3")
"""Byte-level merges, and a vocabulary whose tokens take the white space behind them."""
TEXTS = st.lists(st.sampled_from((*TOKENS, *WORDS)), max_size=12).map("".join)


def _plain(tokenizer: Tokenizer) -> None:
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in TOKENS])


def _marked(option: str) -> Callable[[Tokenizer], None]:
    def add(tokenizer: Tokenizer) -> None:
        _plain(tokenizer)
        tokenizer.add_tokens([AddedToken("<x>", normalized=False, **{option: True}), AddedToken("é A")])

    return add


def _split(tokenizer: Tokenizer) -> None:
    _plain(tokenizer)
    tokenizer.add_tokens([AddedToken("<x>", normalized=False)])
    tokenizer.encode_special_tokens = True


def _first(tokenizer: Tokenizer) -> None:
    _plain(tokenizer)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")


def _prefixed(tokenizer: Tokenizer) -> None:
    _plain(tokenizer)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("x")])


MADE: dict[str, Callable[[Tokenizer], None]] = {
    "without": lambda _: None,
    "plain": _plain,
    "white space before": _marked("lstrip"),
    "white space behind": _marked("rstrip"),
    "single words": _marked("single_word"),
    "special tokens as text": _split,
    "a mark at the beginning": _first,
    "a prefix": _prefixed,
}


@cache
def made(name: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(str(vocabulary().plain.to_str()))
    MADE[name](tokenizer)
    return tokenizer


def same(tokenizer: Tokenizer, encoder: ChunkEncoder, text: str) -> None:
    whole = tokenizer.encode(text, add_special_tokens=False)
    found = encoder.encoded(text)
    assert list(found.ids) == whole.ids
    assert list(encoder.ids(text)) == whole.ids
    assert list(found.offsets) == whole.offsets


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=20)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_pieces_are_encoded_as_the_whole(name: str, texts: list[str]) -> None:
    encoder = ChunkEncoder.of(made(name))
    for text in texts:
        same(made(name), encoder, text)
        same(made(name), encoder, f"<x> {text} <x>\n {text}")


def test_texts_are_cut_where_that_saves_work() -> None:
    calls: list[str] = []

    class Counting:
        def encode(self, text: str, *, add_special_tokens: bool) -> object:
            calls.append(text)
            return made("plain").encode(text, add_special_tokens=add_special_tokens)

    known = ChunkEncoder.of(made("plain"))
    encoder = ChunkEncoder(Counting(), known.added, known.borders)  # type: ignore[arg-type]  # it counts
    for _ in range(2):
        encoder.ids("a<ab>b</s>c")
    encoder.ids("<ab>b</s>d")
    assert calls == ["a", "<ab>b", "</s>c", "</s>d"]


def test_half_a_surrogate_pair_has_no_ids() -> None:
    with pytest.raises(InputError, match="surrogate"):
        ChunkEncoder.of(made("plain")).ids("a</s>\ud800")


@given(st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=6), st.text("ab<", max_size=12))
def test_the_longest_word_is_found_first(words: list[str], text: str) -> None:
    sorted_words = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    found, wanted = (re.finditer(pattern, text) for pattern in (longest_of(words), sorted_words))
    assert [one.span() for one in found] == [one.span() for one in wanted]


@needs_families
def test_pieces_of_real_tokenizers_are_encoded_as_the_whole() -> None:
    for name in REAL:
        tokenizer, _ = load_tokenizer(Folder.read(FAMILIES / name))
        tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        encoder = ChunkEncoder.of(tokenizer)
        for place in range(0, len(tokens), max(len(tokens) // 40, 1)):
            one, two = tokens[place], tokens[-1 - place]
            same(tokenizer, encoder, f"Hi{one}user\n It is 7.{two} {one}\n\n{two}{one} so{two}\n")
