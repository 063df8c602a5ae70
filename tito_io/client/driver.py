"""The kernel's driver for answers that must be awaited: the twin of `tito_core.answer`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

from tito_core import Message, Question, Questions, TemplateRefused

T = TypeVar("T")


class AsyncTokenizeFn(Protocol):
    """Renders messages somewhere else."""

    def __call__(
        self, messages: Sequence[Message], *, add_generation_prompt: bool
    ) -> Awaitable[Sequence[int]]:
        """Return ids; raises `TemplateRefused` where the template rejects the messages."""


async def answer(asking: Questions[T], tokenize_fn: AsyncTokenizeFn) -> T:
    """Run a computation to its end, awaiting each answer.

    What `tokenize_fn` raises comes out unchanged, except `TemplateRefused`, which the computation is told.
    """
    resume: Callable[[], Question] = partial(next, asking)
    while True:
        try:
            question = resume()
        except StopIteration as end:
            return cast("T", end.value)
        try:
            ids = await question.put(tokenize_fn)
        except TemplateRefused as refused:
            resume = partial(asking.throw, refused)
        else:
            resume = partial(asking.send, ids)
