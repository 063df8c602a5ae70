"""What the law of merges asks of a framework: the next prompt after a turn and new messages."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from attrs import define

from tests.frameworks.turns import SampledPrompt

Merge = Callable[[SampledPrompt], list[int]]
"""Returns the next prompt."""


@define(slots=False)
class Merges(abc.ABC):
    """Merges of one tokenizer.

    Attributes:
        name: The name of the model family.
        tokenizer: The tokenizer.
        stops: The ids that end a turn.
        raises: What the framework's own code raises for turns that it does not take.
    """

    name: str
    tokenizer: Any
    stops: tuple[int, ...]
    raises: ClassVar[tuple[type[Exception], ...]] = ()

    def __attrs_post_init__(self) -> None:
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token

    @abc.abstractmethod
    def ours(self) -> Merge:
        """Return the integration, which may raise `RefusedError`."""

    def theirs(self) -> Merge | None:
        """Return the framework's own code, None where there is none."""
        return None

    def takes(self, case: SampledPrompt) -> bool:  # noqa: ARG002  # most take all
        """Return whether the framework can be given such a conversation."""
        return True

    def rights(self, cases: Sequence[SampledPrompt]) -> int:
        """Return how many prompts of the framework's own code are right."""
        return sum(self._is_right(case) for case in cases)

    def _is_right(self, case: SampledPrompt) -> bool:
        try:
            theirs = self.theirs()
            return theirs is not None and theirs(case) == case.expected
        except self.raises:
            return False
