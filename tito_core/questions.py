"""Questions that the kernel asks, and the driver that answers them from a function.

The kernel is written once, as generators: each yields a `Question` and is sent the ids. `answer` drives one
with a plain function; `tito_io.client.answer` drives the same generator with an `await`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import attrs

from .checks import short_repr
from .errors import InputError, TemplateRefused, TokenizeError
from .ids import checked
from .message import Message, copy_of

T = TypeVar("T")
R = TypeVar("R")
WANTED = ("tokenize(messages, *", "rendered(self, messages, since, *, ids")
"""What a function, and a `Renderer`'s method, take before `add_generation_prompt`."""


@attrs.frozen
class Rendered:
    """The text that a template writes, and its ids.

    Attributes:
        text: The whole text; None where it cannot be had.
        ids: Its ids, from `Question.since` on; none if they are not asked for.
    """

    text: str | None
    ids: Sequence[int] = ()


@attrs.frozen
class Question:
    """Render these messages and send back the ids.

    Attributes:
        messages: What to render; copies, which the receiver may change.
        add_generation_prompt: Whether the model is to speak next.
        since: Only the ids from this text on are needed. Send all ids where the rendered text cannot be cut,
            or where the text occurs not exactly once: a template may write words that no message has.
        certifies: Whether the answer serves a certificate of the template, whatever the conversation is.
        text: Whether the text is of use, too. A `Rendered` may be sent in place of ids always.
        ids: Whether the ids are needed if the text is sent.
    """

    messages: tuple[Message, ...]
    add_generation_prompt: bool = True
    since: str | None = None
    certifies: bool = False
    text: bool = False
    ids: bool = True

    def put(self, tokenize_fn: Callable[..., R]) -> R:
        """Call `tokenize_fn`, sync or async, with this question and return its answer.

        A `Renderer` is asked for the text, too, where that is of use, or where ids from a text on are
        enough. If it has an attribute `certifying`, a function of its own kind, that one is asked for
        certificates.

        Raises `InputError` if it does not take these arguments. What is raised inside of it passes through.
        """
        tokenize_fn = getattr(tokenize_fn, "certifying", tokenize_fn) if self.certifies else tokenize_fn
        cut = self.text or self.since is not None
        render = getattr(tokenize_fn, "rendered", None) if cut else None
        call = tokenize_fn if render is None else partial(render, since=self.since, ids=self.ids)
        try:
            return call(list(self.messages), add_generation_prompt=self.add_generation_prompt)
        except TypeError as error:
            if error.__traceback__ and error.__traceback__.tb_next:  # it was called, and raised it
                raise
            wanted = f"define it as def {WANTED[bool(render)]}, add_generation_prompt)"
            raise InputError(f"tokenize_fn cannot be called: {error}; {wanted}") from None


Questions: TypeAlias = Generator[Question, "Sequence[int] | Rendered", T]
"""A generator that yields questions, is sent the answers, and returns a T. Drive it with `answer`."""


class TokenizeFn(Protocol):
    """A function that renders messages through a chat template and tokenizes the text.

    One function stands for one rendering: a model's template with its tools and arguments. It must give
    the same answer to the same question. The kernel asks about short conversations with system texts, tool
    calls and tool results; `probe` also about contents that are None, missing or lists of parts. Raise
    `TemplateRefused` for what the template does not take. A `Renderer` saves most of the tokenizing.

    An optional attribute `template_words` has texts that the template looks for in messages, such as
    `("failed:",)`. A template may remember them over its loop: it is asked about those that were said.
    """

    def __call__(self, messages: list[dict[str, Any]], /, *, add_generation_prompt: bool) -> Collection[int]:
        """Return ids. Raises `TemplateRefused` where the template rejects the messages."""


class Renderer(TokenizeFn, Protocol):
    """A `TokenizeFn` that can return the text, and tokenize a part of it alone."""

    def rendered(
        self, messages: list[dict[str, Any]], /, since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        """Return the text, and its ids from `since` on if `ids` are asked for.

        The text may be None, and then all ids count. All of them are sent without `since`, too, and where it
        occurs in the text not exactly once. Raises `TemplateRefused` like a call.
        """


def ask(
    messages: Sequence[Message], *, add_generation_prompt: bool = True, since: str | None = None
) -> Questions[tuple[int, ...]]:
    """Ask for the ids of copies of `messages`. Raises `TokenizeError` where the answer is not ids."""
    found: object = yield Question(tuple(map(copy_of, messages)), add_generation_prompt, since)
    return _checked_answer(found.ids if isinstance(found, Rendered) else found)


def ask_rendered(
    messages: Sequence[Message], *, since: str | None = None, ids: bool = True
) -> Questions[Rendered]:
    """Ask for the text of copies of `messages`, and for the ids unless they are not needed beside a text."""
    found: object = yield Question(tuple(map(copy_of, messages)), since=since, text=True, ids=ids)
    text, answered = (found.text, found.ids) if isinstance(found, Rendered) else (None, found)
    return Rendered(text, _checked_answer(answered))


def if_taken(asking: Questions[T], otherwise: R) -> Questions[T | R]:
    """Ask what `asking` asks, and return `otherwise` where the template rejects a question."""
    try:
        return (yield from asking)
    except TemplateRefused:
        return otherwise


def _checked_answer(ids: object) -> tuple[int, ...]:
    if isinstance(ids, Mapping):
        raise TokenizeError("tokenize_fn answered with a mapping: give the list in it, such as its input_ids")
    if isinstance(ids, list | tuple) and ids and isinstance(ids[0], list | tuple):
        raise TokenizeError("tokenize_fn answered with a batch: give the list of one conversation's ids")
    try:
        return checked(cast("Sequence[int]", ids), "the answer of tokenize_fn")
    except InputError as error:
        raise TokenizeError(str(error)) from None


@attrs.frozen
class Done(Generic[T]):
    """The result of a computation without further questions.

    Attributes:
        value: The result.
    """

    value: T


def resumed(asking: Questions[T], answered: Any = None) -> Question | Done[T]:
    """Go on with the answer to the last question, or with the `TemplateRefused` that was raised for it.

    Returns the next question, or the result. Each driver is a loop around it. The first answer is None.

    >>> def length_of():
    ...     ids = yield Question(({"role": "user", "content": "abc"},))
    ...     return len(ids)
    >>> asking = length_of()
    >>> resumed(asking).messages[0]["content"], resumed(asking, [5, 6])
    ('abc', Done(value=2))
    """
    try:
        return asking.throw(answered) if isinstance(answered, TemplateRefused) else asking.send(answered)
    except StopIteration as end:
        return Done(end.value)


def relayed(asking: Questions[T], change: Callable[[Question], Question]) -> Questions[T]:
    """Ask what `asking` asks, each question as `change` makes it."""
    answered: Any = None
    while not isinstance(step := resumed(asking, answered), Done):
        try:
            answered = yield change(step)
        except TemplateRefused as refused:
            answered = refused
    return step.value


class _TooMany(Exception):  # noqa: N818  # it never leaves `bounded`
    """More questions than were allowed."""


def bounded(asking: Questions[T], most: int, otherwise: R) -> Questions[T | R]:
    """Ask what `asking` asks, and return `otherwise` if that is more than `most` questions."""
    left = iter(range(most))

    def count(question: Question) -> Question:
        if next(left, None) is None:
            raise _TooMany
        return question

    try:
        return (yield from relayed(asking, count))
    except _TooMany:
        return otherwise


def in_parts(question: Question) -> Question:
    """Return `question` with every text as a list of one part; some templates take only such lists.

    >>> in_parts(Question(({"role": "user", "content": "hi"},))).messages[0]["content"]
    [{'type': 'text', 'text': 'hi'}]
    """
    texts = ((message, message.get("content")) for message in question.messages)
    messages = tuple(
        {**message, "content": [{"type": "text", "text": text}]} if isinstance(text, str) else message
        for message, text in texts
    )
    return attrs.evolve(question, messages=messages)


def words_of(tokenize_fn: object) -> tuple[str, ...]:
    """Return the texts that a template is known to look for in messages (see `TokenizeFn`)."""
    return tuple(getattr(tokenize_fn, "template_words", ()))


def require_callable(tokenize_fn: object) -> None:
    """Raise `InputError` unless `tokenize_fn` can be called."""
    if not callable(tokenize_fn):
        raise InputError(f"tokenize_fn is {short_repr(tokenize_fn)}: give a function from messages to ids")


def answer(questions: Questions[T], tokenize_fn: TokenizeFn) -> T:
    """Answer all `questions` from `tokenize_fn` and return their result.

    What `tokenize_fn` raises passes through unchanged, except `TemplateRefused`, which is thrown into the
    generator. Raises `InputError` if it cannot be called so, `TokenizeError` if its answer must be awaited.

    >>> def length_of():
    ...     ids = yield Question(({"role": "user", "content": "abc"},))
    ...     return sum(ids)
    >>> answer(length_of(), lambda messages, *, add_generation_prompt: [len(m["content"]) for m in messages])
    3
    """
    require_callable(tokenize_fn)
    answered: Any = None
    while not isinstance(step := resumed(questions, answered), Done):
        try:
            answered = step.put(tokenize_fn)
        except TemplateRefused as refused:
            answered = refused
        if isinstance(answered, Coroutine):
            answered.close()
            use = "AsyncBridge(tokenize_fn) or answer(stitch_questions(...), tokenize_fn) of tito_io.client"
            raise TokenizeError(f"tokenize_fn is async: await {use}")
    return step.value
