"""Texts to compare two tokenizers: those on which implementations of one tokenizer tend to differ.

The texts are the same in every process: they are drawn with a fixed seed.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from itertools import chain, product
from random import Random

from tokenizers import Tokenizer

SEED = 20_260_101
LONG = 4_096
"""Characters of a long run."""
CHUNK = 20_000
"""Characters of a text that is made of many pieces. A piece that differs is found in any text."""
DRAWN = 500
"""Random texts of each kind."""
WHITE = " \t\n\r\v\f\x1c\x85\xa0\u2003\u2028\u2029\u200b\u3000\ufeff"
WORDS = (
    *("a", "Zebra", "don't", "I'LL", "o\u2019clock", "naïve", "STRASSE", "straße", "snake_case", "camelCase"),
    *("0", "007", "1234567890", "3.14", "1e-9", "٣٤", "१२३", "Ⅷ", "½", "²", "x2y"),
    *(
        "e\u0301",
        "o\u0302\u0323",
        "\u1112\u1161\u11ab",
        "ﬁ",
        "Å",
        "Ǆ",
        "İ",
        "ς",
        "東京",
        "かな",
        "한글",
        "ไทย",
    ),
    *("🦊", "👨\u200d👩\u200d👧", "🇩🇪", "👍🏽", "\ufffd", "\x00", "\x7f", "\ue000", "\U00100000", "\u0378"),
    *("...", "!=", "->", "://", "#!/", '{"a": [1, null]}', "</think>", "<|x|>", "▁", "Ġ", "##ing", "<0x0A>"),
)
"""Words of many scripts and kinds, with the signs that vocabularies themselves use."""
RUNS = (*"a0 \n\t=é東\u0301", "ab", "\r\n", " \n", "👨\u200d👩\u200d👧", "\u1100\u1161", "'s")
"""What long runs repeat."""


def texts(tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    """Yield texts for a tokenizer, each after the name of its kind."""
    drawn = Random(SEED)  # noqa: S311  # no secret: every process shall draw the same texts
    pieces: dict[str, Iterator[str]] = {
        "added tokens": added_tokens(tokenizer, drawn),
        "code points": code_points(),
        "vocabulary": vocabulary(tokenizer, drawn),
    }
    whole: dict[str, Iterator[str]] = {
        "long runs": (one * (LONG // len(one)) + end for one, end in product(RUNS, ("", "b", "\n"))),
        "words and white space": (mixed(drawn) for _ in range(DRAWN)),
        "any characters": (scrambled(drawn) for _ in range(DRAWN)),
        "surrogates": iter(("\ud800", "a\udfff", "\ud83e\udd8a")),
    }
    for kind, found in chain(((kind, joined(found)) for kind, found in pieces.items()), whole.items()):
        for text in found:
            yield kind, text


def joined(pieces: Iterator[str]) -> Iterator[str]:
    """Join pieces to texts of `CHUNK` characters, so that each need not be encoded by a call of its own.

    >>> list(joined(iter(["to", "ken"])))
    ['token']
    """
    waiting, size = [], 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield "".join(waiting)
            waiting, size = [], 0
    yield "".join(waiting)


def added_tokens(tokenizer: Tokenizer, drawn: Random) -> Iterator[str]:
    """Yield each added token between others, between white space, in a word, and cut."""
    tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.content]
    for token in tokens:
        cut = drawn.randrange(len(token) + 1)
        before, after = drawn.choice(WHITE), drawn.choice(WHITE)
        yield f"{token}{drawn.choice(tokens)}a{token}b{before}{token}{after}{token}\u0301 {token.swapcase()}"
        yield f"{token[:cut]} {token[cut:]}{before}{token[cut:]}{token[:cut]}\n{token}\n\n"


def code_points() -> Iterator[str]:
    """Yield each character that Unicode assigns: alone in a word, and after a space."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) not in ("Cn", "Co", "Cs"):
            yield f"{character}x {character}" if code % 8 else f"{character}\n{character} 1{character}"


def vocabulary(tokenizer: Tokenizer, drawn: Random) -> Iterator[str]:
    """Yield the text of every token, in a random order."""
    ids = list(range(tokenizer.get_vocab_size(with_added_tokens=False)))
    drawn.shuffle(ids)
    for start in range(0, len(ids), LONG):
        yield tokenizer.decode(ids[start : start + LONG], skip_special_tokens=False)


def mixed(drawn: Random) -> str:
    """Return words with runs of white space between them, most of them short."""
    runs = (drawn.choice(WHITE) * drawn.choice((0, 1, 1, 1, 2, 3, 17)) for _ in range(drawn.randrange(80)))
    return "".join(drawn.choice(WORDS) + run for run in runs)


def scrambled(drawn: Random) -> str:
    """Return characters of the whole of Unicode, mostly of its first blocks."""
    last = (0x7F, 0x24F, 0x2FFF, 0xD7FF)
    return "".join(chr(drawn.randrange(drawn.choice(last) + 1)) for _ in range(drawn.randrange(400)))
