"""Who renders and tokenizes while something is measured: a model folder where there is one, else a toy."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from tito_core import Message, TokenizeFn, suffix_ids

FOLDER, TEMPLATE = "qwen3", "chat_template.instruct-2507.jinja"
"""A template that keeps history, so that every program here has the same right answer."""


@attrs.frozen
class Voice:
    """A tokenizer and a template."""

    name: str
    folder: Path | None
    """The model folder; None for the toy."""
    tokenize: TokenizeFn
    encode: Callable[[str], list[int]] = attrs.field(repr=False)
    suffix: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The id that ends a turn."""
        return self.suffix[0]

    def counted(self) -> tuple[TokenizeFn, Callable[[], int]]:
        """Return the tokenizer, and what tells how many tokens it has made so far."""
        if self.folder is None:
            heard = Listening(self.tokenize)
            return heard, lambda: heard.count
        bound: Any = self.tokenize
        counting = Counting(bound.family.tokenizer)
        family = attrs.evolve(bound.family, tokenizer=counting)
        return attrs.evolve(bound, family=family), lambda: counting.count

    def said(self, text: str) -> list[int]:
        """Return the ids of a turn that says this and stops."""
        return [*self.encode(text), self.stop]


def voice() -> Voice:
    """Return the model folder of TITO_FAMILIES, or the toy without it."""
    families = os.environ.get("TITO_FAMILIES")
    folder = Path(families) / FOLDER if families else None
    return _real(folder) if folder is not None and folder.is_dir() else _toy()


def _real(folder: Path) -> Voice:
    from tito_io.families.family import Family  # noqa: PLC0415  # the toy needs no tokenizer library

    family = Family.load(folder, template=TEMPLATE)
    tokenize = family.tokenize_fn()
    return Voice(f"{FOLDER} ({TEMPLATE})", folder, tokenize, family.encode, suffix_ids(tokenize))


def _toy() -> Voice:
    return Voice("toy, an id a word", None, toy, words, suffix_ids(toy))


def words(text: str) -> list[int]:
    """Return an id for each word."""
    return [10 + zlib.crc32(word.encode()) % 150_000 for word in text.split()]


def toy(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render as a toy: 1 opens a turn and 2 closes it."""
    ids = [i for m in messages for i in (1, *words(m["role"]), 3, *words(str(m.get("content") or "")), 2)]
    return [*ids, 1, *words("assistant"), 3] if add_generation_prompt else ids


@attrs.define
class Counting:
    """A vocabulary that counts the tokens that it makes."""

    vocabulary: Any
    count: int = 0

    def encode(self, text: str, **options: Any) -> Any:
        """Return the ids of a text."""
        found = self.vocabulary.encode(text, **options)
        self.count += len(found.ids)
        return found

    def get_added_tokens_decoder(self) -> Any:
        """Return the added tokens."""
        return self.vocabulary.get_added_tokens_decoder()


@attrs.define
class Listening:
    """A tokenizer that keeps its answers, and can cut where the other can."""

    tokenize: Any
    answers: list[list[int]] = attrs.field(factory=list)

    @property
    def count(self) -> int:
        """How many tokens it was given."""
        return sum(map(len, self.answers))

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Tokenize all."""
        return self._kept(self.tokenize(messages, add_generation_prompt=add_generation_prompt))

    def since(self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool) -> list[int]:
        """Tokenize from a text on, where that can be done."""
        cut = getattr(self.tokenize, "since", None)
        if cut is None:
            return self(messages, add_generation_prompt=add_generation_prompt)
        return self._kept(cut(messages, text, add_generation_prompt=add_generation_prompt))

    def _kept(self, ids: list[int]) -> list[int]:
        self.answers.append(ids)
        return ids

    def replayed(self) -> Replaying:
        """Return what gives the same answers, and takes no time."""
        return Replaying(self.answers)


@attrs.define
class Remembering:
    """A tokenizer that answers a question once: histories are made of few texts."""

    tokenize: TokenizeFn
    known: dict[str, list[int]] = attrs.field(factory=dict)

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return what was answered before."""
        key = repr((messages, add_generation_prompt))
        if key not in self.known:
            self.known[key] = list(self.tokenize(messages, add_generation_prompt=add_generation_prompt))
        return self.known[key]


@attrs.define
class Replaying:
    """A tokenizer that takes no time: what it was asked once it answers again, in the same order."""

    answers: list[list[int]]
    place: int = 0

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the next answer."""
        del messages, add_generation_prompt  # they were looked at when it was listened to
        self.place = (self.place + 1) % len(self.answers)
        return self.answers[self.place - 1]

    def since(self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool) -> list[int]:
        """Return the next answer."""
        del text
        return self(messages, add_generation_prompt=add_generation_prompt)
