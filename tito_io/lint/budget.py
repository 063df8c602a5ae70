"""Limit the work of one lint: a template that uses up its budget is not linted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from tito_core import TemplateRefused, TitoError
from tito_io.families.limits import LimitReached

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
        earliest: When the clock of the wall allows that all of it is used up.
    """

    seconds: float = SECONDS
    renders: int = 0
    heavy: int = 0
    began: float = attrs.field(factory=time.thread_time)
    earliest: float = attrs.field(init=False)

    @earliest.default
    def _earliest(self) -> float:
        # A thread cannot use more processor time than passes, and asking for what passes takes a hundredth.
        return time.perf_counter() + self.seconds

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
                raise Hostile(f"the template exceeds the limits of a lint: {refused}") from refused
            raise
        finally:
            self.renders += 1
            if time.perf_counter() > self.earliest and self.used > self.seconds:
                text = f"linting it takes more than {self.seconds:g} s of processor time (see --seconds)"
                raise Hostile(text)
