"""Certificates of parity: the texts that two tokenizers encoded, and whether the ids were the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Self

from attrs import asdict, frozen

from tito_io.families.kept_files import KeptFiles

KIND = "certificate"
Encode = Callable[[str], list[int] | None]
"""Returns the ids of a text; None where the tokenizer refuses it."""


@frozen
class Certificate:
    """The result of a comparison of two tokenizers.

    Attributes:
        texts: How many texts were compared.
        characters: How long they were together.
        difference: The kind of text whose ids differed first; None where all were the same.
    """

    texts: int
    characters: int
    difference: str | None

    @classmethod
    def read(cls, body: bytes) -> Self | None:
        """Return the certificate in a file; None if it holds none."""
        try:
            found = cls(**json.loads(body))
        except (TypeError, ValueError, RecursionError):
            return None
        counts = all(type(one) is int and one >= 0 for one in (found.texts, found.characters))
        return found if counts and isinstance(found.difference, str | None) else None

    def keep(self, key: str) -> None:
        """Write the certificate into the file of its key."""
        KeptFiles.default(KIND).keep(key, json.dumps(asdict(self)).encode())


def compared(fast: Encode, reference: Encode, texts: Iterable[tuple[str, str]]) -> Certificate:
    """Encode texts with both tokenizers, up to the first whose ids differ.

    The fast one is asked for each text twice: it may answer from what it keeps of the first time.

    Args:
        fast: The tokenizer to be examined.
        reference: The tokenizer that is right.
        texts: Texts, each after the name of its kind.

    >>> compared(lambda text: [len(text)], lambda text: [len(text)], [("words", "token"), ("words", "")])
    Certificate(texts=2, characters=5, difference=None)
    """
    count = characters = 0
    for kind, text in texts:
        count, characters = count + 1, characters + len(text)
        ids = reference(text)
        if fast(text) != ids or fast(text) != ids:
            return Certificate(count, characters, kind)
    return Certificate(count, characters, None)


def certificate(key: str, make: Callable[[], Certificate]) -> Certificate:
    """Return the certificate of a key from its file, or `make` it and write the file."""
    body = KeptFiles.default(KIND).find(key)
    known = None if body is None else Certificate.read(body)
    if known is not None:
        return known
    found = make()
    found.keep(key)
    return found
