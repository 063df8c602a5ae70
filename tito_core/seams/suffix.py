"""The suffix: the ids with which a chat template closes an assistant turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

from ..errors import InputError
from ..questions import Question, Questions, T, TokenizeFn, answer, ask, if_taken, in_parts, relayed
from .history import SYSTEM, USER
from .seam import OTHER, SHORT, Seam, common_prefix, seam_questions
from .turn_form import TurnForm

Form: TypeAlias = Callable[[Question], Question]
"""How a question is changed so that the template takes it."""
ANSWER_FORM = TurnForm({"role": "assistant"})
LOST = "the chat template loses an assistant's content, or merges it: nothing can be stitched"
UNSTEADY = "tokenize_fn gave two answers to the same question: equal messages must have equal ids"


def suffix_ids(tokenize_fn: TokenizeFn) -> tuple[int, ...]:
    """Return the close of an assistant turn, such as `<|im_end|>` and a newline. Compute it once.

    It is empty if the next role's marker closes the turn. `tokenize_fn` is that of `stitch`. Raises
    `InputError` if the template loses an assistant's content, so that no turn of it can be located, or if
    `tokenize_fn` gives two answers to the same question.

    >>> def tokenize(messages, *, add_generation_prompt):      # 1 opens a turn, 2 closes it
    ...     ids = [i for m in messages for i in (1, len(m["role"]), *m["content"].encode(), 2)]
    ...     return ids + [1, len("assistant")] * add_generation_prompt
    >>> suffix_ids(tokenize)
    (2,)
    """
    return answer(suffix_questions(), tokenize_fn)


def suffix_questions() -> Questions[tuple[int, ...]]:
    """Ask for the close: what follows a turn where the model speaks next, without the generation prompt.

    Ids that stand there only before a user message, or only before a system message, belong to that
    message's opener. A template that demands a system text, or lists of parts, is asked with those.
    """
    return (yield from as_taken(close_questions()))


def as_taken(questions: Questions[T]) -> Questions[T]:
    """Ask `questions` in the form that the template takes (see `form_questions`)."""
    return (yield from relayed(questions, (yield from form_questions())))


def form_questions() -> Questions[Form]:
    """Ask how texts must be written: as they are, else after a system text, else as lists of one part."""
    for form in (as_is, opened):
        if (yield from relayed(takes_texts_questions(), form)):
            return form
    return in_parts if (yield from takes_parts_questions()) else as_is


def as_is(question: Question) -> Question:
    """Return `question`."""
    return question


def opened(question: Question) -> Question:
    """Return `question` with a system text in front; some templates demand one."""
    return attrs.evolve(question, messages=({**SYSTEM}, *question.messages))


def takes_texts_questions() -> Questions[bool]:
    """Ask whether the template writes an assistant's content that is a string."""
    found = yield from if_taken(seam_questions(ANSWER_FORM.within((USER,))), None)
    return isinstance(found, Seam)


def takes_parts_questions() -> Questions[bool]:
    """Ask whether the template writes the text of a part and nothing else of it, as in a printed list."""
    if not (yield from relayed(takes_texts_questions(), in_parts)):
        return False
    part = {"type": "text", "text": SHORT}
    plain = yield from if_taken(relayed(_said([part]), in_parts), ())
    noted = yield from if_taken(relayed(_said([{**part, "note": OTHER}]), in_parts), ())
    return bool(plain) and plain == noted


def _said(content: list[dict[str, str]]) -> Questions[tuple[int, ...]]:
    return (yield from ask((USER, {"role": "assistant", "content": content})))


def close_questions() -> Questions[tuple[int, ...]]:
    """Ask what `suffix_questions` asks, in texts alone."""
    after = yield from _after(())
    # Qwen3.5 and DeepSeek-R1 go on with `<think>`, which is no part of a close.
    speaking = yield from ask((USER,))
    silent = yield from ask((USER,), add_generation_prompt=False)
    opener = speaking[common_prefix(speaking, silent) :]
    close = after[: len(after) - len(opener)] if opener and after[-len(opener) :] == opener else after
    for message in (USER, SYSTEM):
        followed = yield from if_taken(_after((message,)), close)
        close = close[: common_prefix(close, followed)]
    return close


def _after(following: tuple[dict[str, str], ...]) -> Questions[tuple[int, ...]]:
    """Return the ids after an assistant's content."""
    write = ANSWER_FORM.within((USER,), following)
    seam = yield from seam_questions(write, sure=not following)
    if isinstance(seam, Seam):
        return seam.tail
    once, again = (yield from ask(write(SHORT))), (yield from ask(write(SHORT)))
    raise InputError(LOST if once == again else UNSTEADY)
