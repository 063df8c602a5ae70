"""A fast tokenizer beside the reference: used while both give the same ids, and compared again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, count
from threading import Lock
from typing import Any, Self

from attrs import define, evolve, field, frozen
from tokenizers import Tokenizer

from tito_core import InputError
from tito_io.families.tokenizer import encoded, vocabulary_size
from tito_io.whole_numbers import check_whole

from .certificate import Certificate, certificate, compared
from .library import NAME, attempted, installed_version, loaded
from .texts import texts

LOG = logging.getLogger("tito.families")
CHECK_EVERY = 100
"""Texts between two that the reference encodes as well. It takes about twenty times as long."""


@define(eq=False)
class FastUse:
    """Whether a fast tokenizer is in use. Threads share it, and families that differ in added tokens alone.

    Attributes:
        name: The model folder, for the log.
        key: The key of the certificate.
        check_every: Every text of this number is encoded by the reference as well.
        certificate: What the comparison before the first use found.
        off: Why the reference alone is used; None while the fast tokenizer is in use.
        differences: Texts whose ids differed in use; the first one ends the use.
        on_difference: Called at each of them.
    """

    name: str
    key: str
    check_every: int
    certificate: Certificate | None = None
    off: str | None = None
    differences: int = 0
    on_difference: Callable[[], None] = field(default=lambda: None, repr=False)
    _texts: Any = field(factory=count, init=False, repr=False)
    _lock: Any = field(factory=Lock, init=False, repr=False)

    def __str__(self) -> str:
        """Say whether it is in use: what was compared, or why not."""
        if self.off is not None:
            return f"{NAME} is not in use: {self.off}"
        texts = self.certificate.texts if self.certificate else 0
        often = "every text" if self.check_every == 1 else f"one of {self.check_every:,} texts"
        return f"{NAME} is in use: {texts:,} texts were compared, and {often} is encoded by tokenizers, too"

    @property
    def due(self) -> bool:
        """Whether the reference shall encode the next text as well; asking counts the text."""
        number: int = next(self._texts)
        return number % self.check_every == self.check_every - 1

    def differed(self) -> None:
        """Use the reference alone from now on, also in later processes."""
        with self._lock:
            self.differences += 1
            first, self.off = self.off is None, self.off or "it gave other ids than the reference"
        self.on_difference()
        if first:
            Certificate(1, 0, "in use").keep(self.key)
            LOG.warning(
                "%s: fastokens gave other ids than tokenizers and is switched off. This text got the ids of "
                "tokenizers. Of the texts before, one in %d was compared: `tito audit` compares stored calls",
                self.name,
                self.check_every,
            )


@frozen(eq=False)
class FastTokenizer:
    """A fast tokenizer, with the reference that it must equal.

    Attributes:
        reference: The tokenizer of the package `tokenizers`.
        use: Whether the fast one is in use, and why not.
        unknown: Added tokens of the reference that the fast tokenizer does not know.
        size: Tokens of the reference when it was compared.
    """

    reference: Tokenizer = field(repr=False)
    use: FastUse
    unknown: tuple[str, ...] = ()
    _fast: Any = field(default=None, repr=False)
    size: int = field(init=False)

    @size.default
    def _size_now(self) -> int:
        return vocabulary_size(self.reference)

    @classmethod
    def of(
        cls,
        reference: Tokenizer,
        further: Iterable[tuple[str, str]],
        *,
        name: str,
        key: str,
        check_every: int,
    ) -> Self:
        """Return a tokenizer's fast twin, after a comparison; it is off if they differ.

        Args:
            reference: The tokenizer.
            further: Texts to compare beside those for every vocabulary, each after the name of its kind.
            name: The model folder, for the log.
            key: What the comparison depends on: names the file in which its result is kept.
            check_every: After how many texts the reference encodes one as well.
        """
        check_whole(check_every, "check_every", 1, "a whole number of texts, at least 1")
        use = FastUse(name, key, check_every)
        fast = loaded(reference)
        if fast is None:
            use.off = "it cannot read this tokenizer.json"
        else:
            use.certificate = certificate(key, lambda: _compared(reference, further))
            if use.certificate.difference is not None:
                use.off = f"it gave other ids than the reference ({use.certificate.difference})"
        if use.off is not None:
            LOG.warning("%s: fastokens is not used: %s", name, use.off)
        return cls(reference, use, fast=fast)

    def extended(self, reference: Tokenizer, added: Iterable[str]) -> Self:
        """Return the twin of a `reference` that has these tokens `added`: it reads texts without them.

        None of them may be a token already: what the fast tokenizer takes it for may hold no longer.
        """
        return evolve(self, reference=reference, unknown=(*self.unknown, *added))

    @property
    def library(self) -> str | None:
        """The package that is in use, with its version; None while the reference alone is."""
        return None if self.use.off is not None else f"{NAME} {installed_version()}"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text. They are the reference's where the fast tokenizer fails or differs."""
        # One pass for each is faster than one with a regular expression, which takes as long as the encoding.
        if self.use.off is not None or any(token in text for token in self.unknown):
            return encoded(self.reference, text).ids
        ids = _fast_ids(self._fast, self.reference, text)
        if ids is not None and not self.use.due:
            return ids
        right = _reference_ids(self.reference, text)
        if right != ids:
            self.use.differed()
        return encoded(self.reference, text).ids if right is None else right


def _compared(reference: Tokenizer, further: Iterable[tuple[str, str]]) -> Certificate:
    """Compare a fast tokenizer of its own, which goes with all that it keeps of these texts."""
    both = partial(_fast_ids, loaded(reference), reference), partial(_reference_ids, reference)
    return compared(*both, chain(texts(reference), further))


def _fast_ids(fast: Any, reference: Tokenizer, text: str) -> list[int] | None:
    options = {"add_special_tokens": False, "split_special_tokens": reference.encode_special_tokens}
    found = attempted(fast.encode, text, **options)
    return None if found is None else found.ids


def _reference_ids(reference: Tokenizer, text: str) -> list[int] | None:
    try:
        return encoded(reference, text).ids
    except InputError:
        return None
