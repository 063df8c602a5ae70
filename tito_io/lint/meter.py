"""Render and encode for the kernel within a budget, and everything once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import attrs

from tito_core import InputError, Message, Rendered, TemplateRefused
from tito_io.families.chunk_encoder import ChunkEncoder, EncodedText
from tito_io.families.family import Bound
from tito_io.families.rendering import text_from

from .budget import Budget
from .shared_renders import SharedRenders


@attrs.frozen(eq=False)
class LintMeter:
    """Renders and encodes for the kernel.

    Attributes:
        bound: A template with its tools and arguments.
        budget: The budget that each render is charged to.
        encoder: Encodes texts.
        renders: Renders messages.
    """

    bound: Bound
    budget: Budget
    encoder: ChunkEncoder
    renders: SharedRenders = attrs.field(init=False)

    @renders.default
    def _renders(self) -> SharedRenders:
        return SharedRenders(self.bound, self.budget)

    @property
    def template_words(self) -> tuple[str, ...]:
        """The words that the template looks for in messages."""
        return self.bound.template_words

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        """Return ids; raises `TemplateRefused`, or `Hostile` once the budget is used up."""
        return self._ids(self.text(messages, speaking=add_generation_prompt))

    def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        """Return the text, and the ids from `since` on, as `Bound.rendered` does."""
        whole = self.text(messages, speaking=add_generation_prompt)
        return Rendered(whole, self._ids(text_from(whole, since)) if ids else ())

    def text(self, messages: Sequence[Message], *, speaking: bool) -> str:
        """Return the rendered text; `speaking` adds the generation prompt."""
        return self.renders.text(messages, speaking=speaking)

    def text_or_none(self, messages: Sequence[Message]) -> str | None:
        """Return the rendered text with the generation prompt; None if the template rejects the messages."""
        try:
            return self.text(messages, speaking=True)
        except TemplateRefused:
            return None

    def encoded(self, text: str) -> EncodedText:
        """Return the ids of a text, with the characters that each covers."""
        with _text_errors():
            return self.encoder.encoded(text)

    def at(self, clock: Callable[[], datetime]) -> LintMeter:
        """Return what renders at another time."""
        family = attrs.evolve(self.bound.family, clock=clock)
        return LintMeter(Bound(family, self.bound.template, self.bound.variables), self.budget, self.encoder)

    def _ids(self, text: str) -> Sequence[int]:
        with _text_errors():
            return self.encoder.ids(text)


@contextmanager
def _text_errors() -> Iterator[None]:
    """Turn the tokenizer's error into a template's refusal: the messages of a lint are plain ASCII."""
    try:
        yield
    except InputError as error:
        raise TemplateRefused(f"the template writes text that cannot be encoded: {error}") from error
