"""The kernel's driver for answers that must be awaited: the twin of `tito_core.answer`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

import anyio
import attrs

from tito_core import Message, Question, Questions, TemplateRefused
from tito_io.families.family import Bound

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


@attrs.frozen
class InThread:
    """A family's template and vocabulary, as an `AsyncTokenizeFn` that can cut text."""

    bound: Bound

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the template rejects them."""
        asked = partial(self.bound, messages, add_generation_prompt=add_generation_prompt)
        return await anyio.to_thread.run_sync(asked)

    async def since(
        self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids from `text` on; see `tito_core.Ask`."""
        asked = partial(self.bound.since, messages, text, add_generation_prompt=add_generation_prompt)
        return await anyio.to_thread.run_sync(asked)
