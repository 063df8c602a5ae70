"""Renderers that benchmarks use: a model folder or a toy, and wrappers that record, count or replay."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from tito_core import Message, Rendered, TokenizeFn, suffix_ids

T = TypeVar("T")

FOLDER, TEMPLATE = "qwen3", "chat_template.instruct-2507.jinja"
"""A template that never changes earlier turns, so that every program has the same right answer."""


@attrs.frozen
class ChatRenderer:
    """A tokenizer and a chat template.

    Attributes:
        name: Label of the tables.
        folder: The model folder; None for the toy.
        tokenize: Renders messages to ids.
        encode: Encodes the text of an answer.
        suffix: Ids that the template writes after an answer, the stop token first.
    """

    name: str
    folder: Path | None
    tokenize: TokenizeFn
    encode: Callable[[str], list[int]] = attrs.field(repr=False)
    suffix: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The stop token."""
        return self.suffix[0]

    def counted(self) -> tuple[TokenizeFn, Callable[[], int]]:
        """Return the tokenizer, and a function that returns how many tokens it has produced."""
        if self.folder is None:
            recording = RecordingTokenize(self.tokenize)
            return recording, lambda: recording.count
        bound: Any = self.tokenize
        counting = CountingTokenizer(bound.family.tokenizer)
        family = attrs.evolve(bound.family, tokenizer=counting)
        return attrs.evolve(bound, family=family), lambda: counting.count

    def answer_ids(self, text: str) -> list[int]:
        """Return the sampled ids of an answer with this text and a stop token."""
        return [*self.encode(text), self.stop]


def load_renderer() -> ChatRenderer:
    """Return the renderer of the model folder in TITO_FAMILIES, or a toy without it."""
    families = os.environ.get("TITO_FAMILIES")
    folder = Path(families) / FOLDER if families else None
    return _real(folder) if folder is not None and folder.is_dir() else _toy()


def _real(folder: Path) -> ChatRenderer:
    from tito_io.families.family import Family  # noqa: PLC0415  # the toy needs no tokenizer library

    family = Family.load(folder, template=TEMPLATE)
    tokenize = family.tokenize_fn()
    return ChatRenderer(f"{FOLDER} ({TEMPLATE})", folder, tokenize, family.encode, suffix_ids(tokenize))


def _toy() -> ChatRenderer:
    return ChatRenderer("toy, an id a word", None, toy, words, suffix_ids(toy))


def words(text: str) -> list[int]:
    """Return an id for each word."""
    return [10 + zlib.crc32(word.encode()) % 150_000 for word in text.split()]


def toy(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render with a toy template: 1 opens a message, 3 ends its role, 2 closes it."""
    ids = [i for m in messages for i in (1, *words(m["role"]), 3, *words(str(m.get("content") or "")), 2)]
    return [*ids, 1, *words("assistant"), 3] if add_generation_prompt else ids


@attrs.define
class CountingTokenizer:
    """A tokenizer that counts the tokens that it produces."""

    vocabulary: Any
    count: int = 0

    def encode(self, text: str, **options: Any) -> Any:
        """Return the ids of a text."""
        encoding = self.vocabulary.encode(text, **options)
        self.count += len(encoding.ids)
        return encoding

    def get_added_tokens_decoder(self) -> Any:
        """Return the added tokens."""
        return self.vocabulary.get_added_tokens_decoder()


@attrs.define
class RecordingTokenize:
    """Records the answers of a `TokenizeFn`. It can start in mid-text if the other can."""

    tokenize: Any
    answers: list[Any] = attrs.field(factory=list)

    @property
    def count(self) -> int:
        """Tokens in all answers."""
        return sum(len(one.ids if isinstance(one, Rendered) else one) for one in self.answers)

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Tokenize the whole render."""
        return self._record(self.tokenize(messages, add_generation_prompt=add_generation_prompt))

    def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        """Render to a text, too, if the other tokenizer can."""
        speaking = {"add_generation_prompt": add_generation_prompt}
        render = getattr(self.tokenize, "rendered", None)
        if render is not None:
            found: Rendered = self._record(render(messages, since, ids=ids, **speaking))
            return found
        return Rendered(None, self(messages, **speaking))

    def _record(self, answer: T) -> T:
        self.answers.append(answer)
        return answer

    def replayed(self) -> ReplayingTokenize:
        """Return a `TokenizeFn` that repeats the recorded answers."""
        return ReplayingTokenize(self.answers)


@attrs.define
class CachingTokenize:
    """Caches the answers of a `TokenizeFn`. Histories have few different texts."""

    tokenize: TokenizeFn
    known: dict[str, list[int]] = attrs.field(factory=dict)

    def __call__(self, messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        """Return the cached answer, or tokenize."""
        key = repr((messages, add_generation_prompt))
        if key not in self.known:
            self.known[key] = list(self.tokenize(messages, add_generation_prompt=add_generation_prompt))
        return self.known[key]


@attrs.define
class ReplayingTokenize:
    """Returns recorded answers in their order, again and again, without tokenizing."""

    answers: list[Any]
    place: int = 0

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Any:
        """Return the next answer."""
        del messages, add_generation_prompt  # the answers were recorded for the same questions
        self.place = (self.place + 1) % len(self.answers)
        return self.answers[self.place - 1]

    def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Any:
        """Return the next answer."""
        del since, ids
        return self(messages, add_generation_prompt=add_generation_prompt)
