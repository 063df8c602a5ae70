"""The toy tokenizer does what the README of the vectors says, which is written down a second time here."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tito_io.conform.scenario import TOKENIZER
from tito_io.conform.toy_tokenizer import ToyTokenizer

PIECES = (*TOKENIZER.tokens, *TOKENIZER.special, "<|", "im_end", "\n", "é", "👋", "H", " ")


def encoded(text: str, tokenizer: ToyTokenizer = TOKENIZER) -> list[int]:
    """Encode by the two rules of the README, on bytes."""
    special = [name for name in tokenizer.special if name in text]
    if special:
        first = min(special, key=lambda name: (text.index(name), -len(name)))
        before, _, after = text.partition(first)
        return [*encoded(before), tokenizer.special[first], *encoded(after)]
    rest, ids = text.encode(), []
    while rest:
        token = max(
            (name for name in tokenizer.tokens if rest.startswith(name.encode())), key=len, default=""
        )
        ids.append(tokenizer.tokens[token] if token else rest[0])
        rest = rest[len(token.encode()) or 1 :]
    return ids


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=8))
def test_texts_are_encoded_as_the_readme_says(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert ids == encoded(text)
    assert TOKENIZER.decode(ids) == text


def test_the_example_of_the_readme() -> None:
    toy = ToyTokenizer({"an": 256, "ban": 257}, {"<end>": 258})
    assert toy.encode("banana<end>") == [257, 256, 97, 258]
    assert toy.decode([240, 159, 999]) == "\ufffd\ufffd"


def test_a_tokenizer_without_special_tokens_finds_none() -> None:
    assert ToyTokenizer({}, {}).encode("<end>") == list(b"<end>")
