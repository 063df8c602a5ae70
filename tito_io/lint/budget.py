"""Limit the work of one lint: a template that uses up its budget is refused as hostile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
from tokenizers import Encoding

from tito_core import InputError, Message, TemplateRefused, TitoError
from tito_io.families.family import Bound
from tito_io.families.limits import LimitReached
from tito_io.families.tokenizer import encoded

HEAVY = 3
"""How many renders may run into a limit of one render. Templates for conversations run into none."""
SECONDS = 60.0
"""Processor time for one template with all its renderings; most need a tenth of it."""


class Hostile(TitoError):  # noqa: N818  # the name says what the template is, as `LimitReached` says what it does
    """A template that cannot be linted because it uses up its budget."""


@attrs.define
class Budget:
    """The budget that all renders of one template share.

    Attributes:
        seconds: Processor time in all.
        renders: How many renders there were.
        heavy: How many of them ran into a limit.
        began: Processor time of this thread at the beginning.
    """

    seconds: float = SECONDS
    renders: int = 0
    heavy: int = 0
    began: float = attrs.field(factory=time.thread_time)

    @property
    def used(self) -> float:
        """Processor time used so far, the kernel's work on the results included.

        It is that of this thread, so that a busy machine refuses no template.
        """
        return time.thread_time() - self.began

    @contextmanager
    def charge(self) -> Iterator[None]:
        """Charge one render to the budget; raises `Hostile` once it is used up."""
        try:
            yield
        except TemplateRefused as refused:
            self.heavy += isinstance(refused.__cause__, LimitReached)  # a template's own refusal is cheap
            if self.heavy >= HEAVY:
                raise Hostile(f"the template keeps running into its limits: {refused}") from refused
            raise
        finally:
            self.renders += 1
            if self.used > self.seconds:
                text = f"linting it takes more than {self.seconds:g} s of processor time (see --seconds)"
                raise Hostile(text)


@attrs.frozen
class LintBudget:
    """Renders for the kernel within a budget.

    Attributes:
        bound: A template with its tools and arguments.
        budget: The budget that each render is charged to.
    """

    bound: Bound
    budget: Budget = attrs.field(factory=Budget)

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        """Return ids; raises `TemplateRefused`, or `Hostile` once the budget is used up."""
        with self.budget.charge(), _text_errors():
            return self.bound(messages, add_generation_prompt=add_generation_prompt)

    def since(self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool) -> Sequence[int]:
        """Return the ids from `text` on."""
        with self.budget.charge(), _text_errors():
            return self.bound.since(messages, text, add_generation_prompt=add_generation_prompt)

    def text(self, messages: Sequence[Message], *, speaking: bool) -> str:
        """Return the rendered text; `speaking` adds the generation prompt."""
        with self.budget.charge():
            return self.bound.text(messages, add_generation_prompt=speaking)

    def text_or_none(self, messages: Sequence[Message]) -> str | None:
        """Return the rendered text with the generation prompt; None if the template rejects the messages."""
        try:
            return self.text(messages, speaking=True)
        except TemplateRefused:
            return None

    def encoded(self, text: str) -> Encoding:
        """Return the ids of a text, with the characters that each covers."""
        with self.budget.charge(), _text_errors():
            return encoded(self.bound.family.tokenizer, text)


@contextmanager
def _text_errors() -> Iterator[None]:
    """Turn the tokenizer's error into a template's refusal: the messages of a lint are plain ASCII."""
    try:
        yield
    except InputError as error:
        raise TemplateRefused(f"the template writes text that cannot be encoded: {error}") from error
