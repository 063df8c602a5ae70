"""What the kernel asks for, and the driver that answers from a plain function.

The kernel is one body: a generator that yields an `Question` and is sent ids. Whoever drives it decides how
they are made; an engine's `/tokenize` is awaited by the twin of `answer` in `tito_io`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar, cast

import attrs

from .errors import InputError, TemplateRefused, TokenizeError
from .ids import checked
from .message import Message, copied

T = TypeVar("T")
R = TypeVar("R")


@attrs.frozen
class Question:
    """Render these messages and send back the ids."""

    messages: tuple[Message, ...]
    add_generation_prompt: bool = True
    since: str | None = None
    """Only the ids from this text on are wanted; whoever cannot cut a rendered text sends them all.

    So does whoever finds it there not once: a template may write what no message says.
    """

    def put(self, tokenize_fn: Callable[..., R]) -> R:
        """Put the question to a function, sync or async, and return what it returns.

        A `tokenize_fn` that can cut has a method `since(messages, text, *, add_generation_prompt)`: it
        renders the whole, and tokenizes only what begins with `text` where that stands there exactly once.
        """
        cut = None if self.since is None else getattr(tokenize_fn, "since", None)
        if cut is not None:
            answered: R = cut(self.messages, self.since, add_generation_prompt=self.add_generation_prompt)
            return answered
        return tokenize_fn(self.messages, add_generation_prompt=self.add_generation_prompt)


Questions: TypeAlias = Generator[Question, Sequence[int], T]
"""A computation that asks for ids and ends with a T."""


class TokenizeFn(Protocol):
    """Renders messages through a chat template and tokenizes the text.

    One function stands for one way of rendering: a model's template with its tools and arguments. It is
    asked the same more than once and must answer the same. Whoever writes one by hand is asked for system
    texts, tool calls and their results, and by `probe` for contents that are None, missing or lists of
    parts, too: raise `TemplateRefused` for what it does not take. One that has a method `since` (see
    `Question.put`) is spared the tokenizing of what stands before the turn.
    """

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        """Return ids; raises `TemplateRefused` where the template rejects the messages."""


def ask(
    messages: Sequence[Message], *, add_generation_prompt: bool = True, since: str | None = None
) -> Questions[tuple[int, ...]]:
    """Ask for the ids of `messages`; whoever answers gets copies, so that nothing here can be changed.

    Raises `TokenizeError` where the answer is not made of ids.
    """
    ids: object = yield Question(copied(tuple(messages), "messages"), add_generation_prompt, since)
    if isinstance(ids, Mapping):
        raise TokenizeError("tokenize_fn answered with a mapping: give the list in it, such as its input_ids")
    if isinstance(ids, list | tuple) and ids and isinstance(ids[0], list | tuple):
        raise TokenizeError("tokenize_fn answered with a batch: give the list of one conversation's ids")
    try:
        return checked(cast("Sequence[int]", ids), "the answer of tokenize_fn")
    except InputError as error:
        raise TokenizeError(str(error)) from None


def _made(ids: R) -> R:
    """Return an answer, unless it is still to be awaited."""
    if isinstance(ids, Coroutine):
        ids.close()
        raise TokenizeError(
            "tokenize_fn is async: await what an asking asks, as tito_io.client.driver.answer does"
        )
    return ids


def answer(asking: Questions[T], tokenize_fn: TokenizeFn) -> T:
    """Run a computation to its end, answering from a function.

    What `tokenize_fn` raises comes out unchanged, except `TemplateRefused`, which the computation is told.
    Raises `InputError` for one that cannot be called, `TokenizeError` for one that must be awaited.

    >>> def asking():
    ...     ids = yield Question(({"role": "user", "content": "abc"},))
    ...     return sum(ids)
    >>> answer(asking(), lambda messages, *, add_generation_prompt: [len(m["content"]) for m in messages])
    3
    """
    if not callable(tokenize_fn):
        raise InputError(f"tokenize_fn is {tokenize_fn!r:.60}: give a function from messages to ids")
    resume: Callable[[], Question] = partial(next, asking)
    while True:
        try:
            question = resume()
        except StopIteration as end:
            return cast("T", end.value)
        try:
            ids = _made(question.put(tokenize_fn))
        except TemplateRefused as refused:
            resume = partial(asking.throw, refused)
        else:
            resume = partial(asking.send, ids)
