"""A whole lint has one budget. A template that uses it up is refused, whatever it does with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
from tokenizers import Encoding

from tito_core import InputError, Message, TemplateRefused, TitoError
from tito_io.families.family import Bound
from tito_io.families.limits import LimitReached

HEAVY = 3
"""How many renders may run into a limit. A template for conversations runs into none."""
SECONDS = 60.0
"""Processor time for one template with all its renderings; most take a tenth of it."""


class Hostile(TitoError):  # noqa: N818  # what a template is, as `LimitReached` is what it does
    """A template that cannot be looked into: it uses up what it is given."""


@attrs.define
class Budget:
    """What all renders of one template have together."""

    seconds: float = SECONDS
    renders: int = 0
    heavy: int = 0
    began: float = attrs.field(factory=time.thread_time)

    @property
    def used(self) -> float:
        """Processor time of this thread so far, so that a busy machine refuses nothing.

        What the kernel makes of long answers counts too.
        """
        return time.thread_time() - self.began

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Count what a render takes; raises `Hostile` once it is too much."""
        try:
            yield
        except TemplateRefused as refused:
            self._weigh(refused)
            raise
        finally:
            self.renders += 1
            self._look()

    def _weigh(self, refused: TemplateRefused) -> None:
        """Count what ran into a limit; a template's own refusal is cheap."""
        self.heavy += isinstance(refused.__cause__, LimitReached)
        if self.heavy >= HEAVY:
            raise Hostile(f"the template keeps running into its limits: {refused}") from refused

    def _look(self) -> None:
        if self.used > self.seconds:
            raise Hostile(
                f"looking into it takes more than {self.seconds:g} s of processor time in all (see --seconds)"
            )


@attrs.frozen
class LintBudget:
    """Answers the kernel's questions about one rendering of a template, within a budget."""

    bound: Bound
    budget: Budget = attrs.field(factory=Budget)

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        """Return ids; raises `TemplateRefused`, or `Hostile` once too much was used."""
        with self.budget.spent(), _written_by_template():
            return self.bound(messages, add_generation_prompt=add_generation_prompt)

    def since(self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool) -> Sequence[int]:
        """Return the ids from `text` on."""
        with self.budget.spent(), _written_by_template():
            return self.bound.since(messages, text, add_generation_prompt=add_generation_prompt)

    def text(self, messages: Sequence[Message], *, speaking: bool) -> str:
        """Return the text."""
        with self.budget.spent():
            return self.bound.text(messages, add_generation_prompt=speaking)

    def encoded(self, text: str) -> Encoding:
        """Return the ids of a text, with the places where they begin and end."""
        with self.budget.spent(), _written_by_template():
            return self.bound.family.tokenizer.encode(text, add_special_tokens=False)


@contextmanager
def _written_by_template() -> Iterator[None]:
    """Blame the template for a text that has no ids: the messages here are plain ASCII."""
    try:
        yield
    except (InputError, TypeError) as error:
        raise TemplateRefused(f"the template writes a text that has no UTF-8: {error}") from error
