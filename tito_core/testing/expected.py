"""The ids that a prompt or a row must have: the first prompt, each sampled turn, and what is written between.

What a template writes after a turn is found in renders of the real conversation, apart from the kernel: the
turn's text is replaced by unlike words, and what follows the words must be the same for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import attrs

from ..errors import TemplateRefused, TitoError
from .sampled_turn import SampledTurn, flat_ids
from .tails import tail_on
from .toys import Message, Toy

WORDS = ("Quartz", "No. 7041", "Is it so?")
"""Unlike words for a turn to end with: a letter, a digit and a mark, of which a tokenizer may merge some with
what follows."""
OTHER_WORDS = ("Zanzibar", "Quebec")
"""What a new message may say instead; the second, if its own text begins like the first."""


class Render(Protocol):
    """Renders messages to ids, as the chat template and the tokenizer do."""

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        """Return the ids of the messages."""


class CannotLocateError(TitoError):
    """The ids cannot be judged: it cannot be seen where the template ends a turn.

    This is no mistake of the code under test. The message says what was seen.
    """


@attrs.frozen
class Template:
    """A chat template with its tokenizer, as the caller gave them.

    Attributes:
        render: Renders messages to ids.
        decode: Returns the text of ids, special tokens included.
        stop_ids: The ids at which the engine stops; empty if unknown.
    """

    render: Render
    decode: Callable[[list[int]], str]
    stop_ids: Collection[int]

    def ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids of a prompt."""
        return flat_ids(self.render(messages, add_generation_prompt=True), "what render returns")

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids; of those that the tokenizer does not know, the numbers."""
        try:
            return self.decode(list(ids))
        except (ValueError, LookupError, ArithmeticError, TypeError):
            return f"<id {ids[0]}>" if len(ids) == 1 else "".join(self.text([index]) for index in ids)


@attrs.frozen
class Part:
    """Ids that must stand next to each other.

    Attributes:
        choices: What may stand there; more than one only after a tool call that was cut short.
        message: The index of the sampled message that the part is, or that it follows; -1 for the prompt.
        sampled: Whether these ids were sampled.
        whole: For what follows a turn: all that the template writes there, also what was sampled already.
        close: How many of these stand before the text of the first new message.
    """

    choices: tuple[tuple[int, ...], ...]
    message: int = -1
    sampled: bool = False
    whole: tuple[int, ...] = ()
    close: int = 0


def expected_parts(
    template: Template,
    messages: Sequence[Message],
    sampled: Mapping[int, SampledTurn],
    prompt_ids: Sequence[int] | None,
) -> Iterator[Part]:
    """Yield what must stand one after the other: the first prompt, each sampled turn and what follows it."""
    places = [*sorted(sampled), len(messages)]
    yield Part((tuple(prompt_ids) if prompt_ids is not None else template.ids(messages[: places[0]]),))
    for place, following in pairwise(places):
        turn = sampled[place]
        yield Part((turn.ids,), place, sampled=True)
        if place + 1 == len(messages):
            return  # a row ends with what was sampled last
        until = messages[:following]
        tail = tail_after(template, until, place)
        reach = _up_to_new_text(template, until, place, tail)
        called = bool(messages[place].get("tool_calls"))
        starts = _starts(turn, tail[:reach], template.stop_ids, called=called)
        if starts == [0]:
            starts = [_after_merged(turn, template.ids(until), tail, reach)]
        yield Part(tuple(tail[start:] for start in starts), place, whole=tail, close=reach)


def _starts(turn: SampledTurn, close: Sequence[int], stops: Collection[int], *, called: bool) -> list[int]:
    """Return from which id of the tail on it may be added after a turn.

    `close` is the tail up to the text of the first new message. A turn that was cut short gets all of the
    tail. If it called a tool, the rest of the call stands first in `close`, and may be left out.
    """
    places = [place for place, index in enumerate(close) if index in stops]
    if turn.truncated:
        if called and not places:
            raise CannotLocateError("a tool call was cut short: give stop_ids, to show where its turn ends")
        return list(range(places[0] + 1)) if called else [0]
    least = 1 + min(places, default=0)
    sizes = [size for size in range(least, len(close) + 1) if turn.ids[-size:] == tuple(close[:size])]
    return [max(sizes, default=_after_stop(turn.ids, close, stops))]


def _after_stop(ids: Sequence[int], close: Sequence[int], stops: Collection[int]) -> int:
    """Return how many ids of the close are over where only the stop at the end was sampled.

    A template may write white space before it, which the model did not.
    """
    known = bool(ids) and (not stops or ids[-1] in stops) and ids[-1] in close
    return list(close).index(ids[-1]) + 1 if known else 0


def _after_merged(turn: SampledTurn, rendered: Sequence[int], tail: Sequence[int], reach: int) -> int:
    """Return how many ids of the close are over where one id holds the end of the text and their text.

    The engine ended the turn at a stop string, such as a line break, and the template's own ids show it.
    """
    if turn.truncated is not False or not turn.ids:
        return 0
    places = (
        place for place in range(reach, 0, -1) if tuple(rendered[place - len(tail) :]) == tuple(tail[place:])
    )
    return next((place for place in places if rendered[place - len(tail) - 1] == turn.ids[-1]), 0)


# --- what the template writes after a turn ------------------------------------------------------------------


def tail_after(template: Template, messages: Sequence[Message], turn: int) -> tuple[int, ...]:
    """Return the ids that the template writes after `messages[turn]`, with the generation prompt.

    Raises:
        CannotLocateError: Where the turn ends cannot be seen.
    """
    if isinstance(template.render, Toy):
        return _tail_of_toy(template.render, messages, turn)
    tails = [_tail_after_words(template, messages, turn, words) for words in WORDS]
    if len({text for text, _ in tails}) > 1:
        raise CannotLocateError(f"what the template writes after messages[{turn}] depends on its text")
    found = {ids for _, ids in tails if ids is not None}
    if len(found) != 1:
        raise CannotLocateError(
            f"the end of messages[{turn}] and what follows it are one token for any text that was tried"
            if not found
            else f"the ids after messages[{turn}] depend on its text"
        )
    return found.pop()


def _tail_of_toy(toy: Toy, messages: Sequence[Message], turn: int) -> tuple[int, ...]:
    """Return what a toy writes after a turn: it knows where the turn's own text ends."""
    found = tail_on(toy, toy.page(messages, add_generation_prompt=True), turn + 1, len(messages))
    if found is None:
        raise CannotLocateError(f"{toy!r} drops messages[{turn}], or a message after it")
    return tuple(found)


def _tail_after_words(
    template: Template, messages: Sequence[Message], turn: int, words: str
) -> tuple[str, tuple[int, ...] | None]:
    """Return text and ids after a turn that ends with these words; no ids if one token crosses its end."""
    marks, changed = _with_words(messages[turn], words)
    ids = _rendered(template, [*messages[:turn], changed, *messages[turn + 1 :]], turn)
    text = template.text(ids)
    found = [[one.end() for one in re.finditer(re.escape(mark), text, re.IGNORECASE)] for mark in marks]
    if any(len(ends) > 1 for ends in found):
        raise CannotLocateError(f"the template writes the text of messages[{turn}] more than once")
    if not any(found):
        raise CannotLocateError(f"the template drops the text of messages[{turn}]")
    over = max(end for ends in found for end in ends)
    first = _boundary(template, ids, text[:over])
    return text[over:], None if first is None else ids[first:]


def _rendered(template: Template, messages: Sequence[Message], turn: int) -> tuple[int, ...]:
    try:
        return template.ids(messages)
    except TemplateRefused as error:
        raise CannotLocateError(f"the template rejects other words in messages[{turn}]: {error}") from error


def _boundary(template: Template, ids: Sequence[int], before: str) -> int | None:
    """Return how many ids have just this text; None if one of them has text of both sides.

    Prefixes are decoded, because some tokenizers drop the space at the start of what they decode.
    """
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(template.text(ids[:middle])) >= len(before) else (middle + 1, high)
    return low if template.text(ids[:low]) == before else None


def _with_words(message: Message, words: str) -> tuple[list[str], dict[str, Any]]:
    """Return a message with other texts in content, reasoning and arguments, and these texts."""
    changed, marks = dict(message), []
    if message.get("content") or not message.get("tool_calls"):
        marks.append(f"Content {words}")
        changed["content"] = _in_form_of(message.get("content"), marks[-1])
    for name in ("reasoning", "reasoning_content"):
        if message.get(name):
            marks.append(f"Reasoning {words}")
            changed[name] = marks[-1]
    for place, call in enumerate(message.get("tool_calls") or ()):
        marks.append(f"Call {place} {words}")
        changed["tool_calls"] = [*changed["tool_calls"]]
        changed["tool_calls"][place] = _with_argument(call, marks[-1])
    return marks, changed


def _in_form_of(content: Any, text: str) -> Any:
    """Return a text as a list of one part, if the content is a list."""
    return [{"type": "text", "text": text}] if isinstance(content, list | tuple) else text


def _with_argument(call: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return a call with one argument, in the form of its own: JSON text or a mapping."""
    function = call["function"]
    argument = {"text": text}
    given = argument if isinstance(function.get("arguments"), Mapping) else json.dumps(argument)
    return {**call, "function": {**function, "arguments": given}}


def _up_to_new_text(template: Template, messages: Sequence[Message], turn: int, tail: Sequence[int]) -> int:
    """Return how many ids of a tail stand before the text of the first new message."""
    new = messages[turn + 1 :]
    if not new:
        return len(tail)
    content = new[0].get("content")
    words = OTHER_WORDS[isinstance(content, str) and content.startswith(OTHER_WORDS[0][:1])]
    changed = [*messages[: turn + 1], {**new[0], "content": _in_form_of(content, words)}, *new[1:]]
    try:
        other = tail_after(template, changed, turn)
    except (CannotLocateError, TemplateRefused):
        return len(tail)
    return shared_length(tail, other)


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many ids two sequences begin with alike.

    >>> shared_length([5, 6, 7], [5, 6, 8, 7])
    2
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
