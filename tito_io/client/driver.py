"""Answer the kernel's questions with an asynchronous renderer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import attrs

from tito_core import Message, Questions, Rendered, TemplateRefused, TokenizeError
from tito_core.questions import Done, resumed
from tito_io.engines.family_render import family_as, template_of

if TYPE_CHECKING:  # a client whose engine renders needs no template engine and no tokenizer here
    from tito_io.engines.protocol import Rendering
    from tito_io.families.family import Bound, Family
    from tito_io.families.tokenizer_family import TokenizerBound, TokenizerFamily

T = TypeVar("T")


class AsyncTokenizeFn(Protocol):
    """Renders messages through a chat template and tokenizes the text, awaited: `tito_core.TokenizeFn`."""

    def __call__(
        self, messages: list[dict[str, Any]], /, *, add_generation_prompt: bool
    ) -> Awaitable[Collection[int]]:
        """Return ids; raises `TemplateRefused` where the template rejects the messages."""


async def answer(asking: Questions[T], tokenize_fn: AsyncTokenizeFn) -> T:
    """Run a computation of the kernel to its end; the twin of `tito_core.answer`.

    Args:
        asking: The computation, such as `continue_questions(...)`.
        tokenize_fn: Answers its questions. What it raises comes out unchanged, except `TemplateRefused`,
            which is thrown into the computation.

    Raises:
        TokenizeError: `tokenize_fn` is not async, or its answer is not ids.
    """
    answered: Any = None
    while not isinstance(step := resumed(asking, answered), Done):
        try:
            answered = await _awaitable(step.put(tokenize_fn))
        except TemplateRefused as refused:
            answered = refused
    return step.value


def _awaitable(answered: Awaitable[T]) -> Awaitable[T]:
    """Return what a `tokenize_fn` returned; raises `TokenizeError` for ids, which cannot be awaited."""
    if not isawaitable(answered):
        raise TokenizeError("tokenize_fn is not async: use tito_core.Bridge, or tito_core.answer")
    return answered


SHORT = 4_096
"""Up to how many characters of messages are rendered here: in the time that a thread takes to begin."""


async def rendered(messages: Sequence[Message], work: Callable[[], T]) -> T:
    """Return what `work` makes of messages; long ones are rendered in a thread, while other turns go on."""
    if exceeds(messages, SHORT):
        return await anyio.to_thread.run_sync(work)
    await anyio.lowlevel.checkpoint()  # a seam may be proved with many short renders
    return work()


def exceeds(messages: Sequence[Message], most: int) -> bool:
    """Return whether messages hold more than `most` characters of text; no more of them are looked at.

    >>> exceeds([{"role": "user"}, {"role": "user"}], 4), exceeds([{"role": "user"}], 4)
    (True, False)
    """
    return any(total > most for total in accumulate(map(length, messages)))


def length(value: object) -> int:
    """Return how many characters of text a value holds.

    >>> length([{"role": "user", "content": [{"type": "text", "text": "hello"}]}])
    13
    """
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(length, value.values()))
    return sum(map(length, value)) if isinstance(value, list | tuple) else 0


@attrs.frozen
class InThread:
    """A model folder's `tokenize_fn` as an `AsyncTokenizeFn`: it renders long messages in a worker thread.

    Attributes:
        bound: The template and tokenizer, as `Family.tokenize_fn` returns them.
    """

    bound: Bound | TokenizerBound

    @property
    def template_words(self) -> tuple[str, ...]:
        """The words that the template looks for in messages; see `tito_core.TokenizeFn`."""
        return self.bound.template_words

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the template rejects them."""
        render = partial(self.bound, add_generation_prompt=add_generation_prompt)
        return await rendered(messages, partial(render, messages))

    async def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        """Return the text, and the ids if they are asked for; see `tito_core.Renderer`."""
        speaking = add_generation_prompt
        render = partial(self.bound.rendered, since=since, add_generation_prompt=speaking, ids=ids)
        return await rendered(messages, partial(render, messages))


@attrs.frozen
class RenderedBy:
    """Renders in this process what an engine would render: the `renderer` of a `TokenClient`.

    Attributes:
        family: A model folder, or a tokenizer or processor in memory.
        named: Whether it was said whose prompts are written; else a client's engine says so.
    """

    family: Family | TokenizerFamily
    named: bool = False

    def __call__(self, rendering: Rendering) -> InThread:
        """Return the function that renders messages with tools and template arguments."""
        return InThread(template_of(self.family, rendering))

    def of(self, engine: object) -> RenderedBy:
        """Return what renders as `engine` does, unless it was said whose prompts are written."""
        return self if self.named else RenderedBy(family_as(self.family, engine), named=True)


def rendered_by(family: Family | TokenizerFamily, engine: str | None = None) -> RenderedBy:
    r"""Return the `renderer` of a `TokenClient` that renders in this process, with tools and arguments.

    Args:
        family: A model folder, or a tokenizer or processor in memory, as `Family.load` and `Family.of` return
            them. It must be that of the engine's model: nothing compares the two.
        engine: Whose prompts to write, such as `vllm`; None: those of the client's engine.

    Raises:
        InputError: There is no such engine.

    >>> import asyncio
    >>> from tito_io.embedded.vocabulary import family
    >>> from tito_io.engines.protocol import Rendering
    >>> hello = [{"role": "user", "content": [{"type": "text", "text": one} for one in ("Hello.", "You?")]}]
    >>> ids = asyncio.run(rendered_by(family(), "vllm")(Rendering())(hello, add_generation_prompt=True))
    >>> "Hello.\nYou?" in family().decode(ids)
    True
    """
    return RenderedBy(family) if engine is None else RenderedBy(family.rendered_as(engine), named=True)
