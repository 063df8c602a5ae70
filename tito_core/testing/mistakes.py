"""Name the usual cause of wrong ids, a wrong mask or wrong log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import attrs

from .expected import Part, Template
from .toys import Message

CONTEXT = 3
"""Ids before the first difference that are shown."""
SHOWN = 6
"""Ids from the first difference on that are shown."""


class Mistake(Enum):
    """The usual causes of a difference."""

    REFUSED = auto()
    """There are no ids: the code refused to make a prompt."""
    PROMPT = auto()
    """The first prompt is not what the template writes."""
    RERENDERED = auto()
    """Sampled ids were replaced by those of their text: it was tokenized again."""
    REASONING_DROPPED = auto()
    """The history was rendered again, and lacks the reasoning of a turn."""
    TURN_CHANGED = auto()
    """Sampled ids were changed or left out."""
    STOP_TWICE = auto()
    """The close was written whole although its beginning was sampled."""
    CLOSE_CUT = auto()
    """The beginning of the close is missing."""
    WHITE_SPACE = auto()
    """White space between two messages is missing or added."""
    MESSAGE_DROPPED = auto()
    """A new message is missing."""
    GENERATION_PROMPT = auto()
    """The ids end before the generation prompt does."""
    SEAM = auto()
    """Between two turns stand other ids than the template writes."""
    LONGER = auto()
    """More ids follow after the end."""
    MASK_SHIFTED = auto()
    """The mask is right, but shifted by one place."""
    MASK = auto()
    """The mask does not cover exactly the sampled ids."""
    LOGPROBS_SHIFTED = auto()
    """The log-probabilities are right, but shifted by one place."""
    LOGPROBS = auto()
    """The log-probabilities are not those of the sampled ids, or stand on other ids."""


_KEEP = "Keep the ids that the engine returned, and append to them."
USUALLY = {
    Mistake.REFUSED: (
        "the code gave up a conversation that can go on: it did not say that the turn was cut short"
        " (`truncated=True`), gave the turn or the history otherwise than it was, or refuses without need."
    ),
    Mistake.PROMPT: (
        "the first prompt was rendered with other messages, tools or template arguments than `render` uses,"
        " or begins with two BOS tokens. Give `prompt_ids` if it was not rendered by this template."
    ),
    Mistake.RERENDERED: (
        "the conversation was rendered again from its messages, or the turn was decoded and encoded. " + _KEEP
    ),
    Mistake.REASONING_DROPPED: (
        "the conversation was rendered again from its messages, and the template leaves out the reasoning of"
        " earlier turns. " + _KEEP
    ),
    Mistake.TURN_CHANGED: (
        "sampled ids were cut off, merged or replaced: a stop removed, a text trimmed, a completion padded. "
        + _KEEP
    ),
    Mistake.STOP_TWICE: (
        "the engine returned the stop as the last id, and the close was appended whole. Append what follows"
        " the stop."
    ),
    Mistake.CLOSE_CUT: (
        "the engine did not return the stop (a turn that was cut short, or a stop that is not included), but"
        " the code takes it for sampled. Append the whole close then."
    ),
    Mistake.WHITE_SPACE: (
        "what is between two turns was tokenized by itself or stripped: a line break after the stop is lost,"
        " or the tokenizer added a space."
    ),
    Mistake.MESSAGE_DROPPED: (
        "a new message was not rendered: the code took one of several tool results, or does not know a role."
    ),
    Mistake.GENERATION_PROMPT: (
        "the new messages were rendered without `add_generation_prompt=True`, or the end of what was rendered"
        " was stripped or cut off."
    ),
    Mistake.SEAM: (
        "what is between two turns was rendered in another conversation than the real one (dummy messages),"
        " or with other tools or template arguments."
    ),
    Mistake.LONGER: "a row was padded, closed after its last turn, or given a generation prompt.",
    Mistake.MASK_SHIFTED: ("the mask was shifted by one for labels, or begins one id too early or too late."),
    Mistake.MASK: (
        "a stop that was sampled must be 1; closes, tool results and generation prompts, which were appended,"
        " must be 0."
    ),
    Mistake.LOGPROBS_SHIFTED: "the log-probabilities were shifted by one for labels.",
    Mistake.LOGPROBS: (
        "each sampled id has the log-probability that the engine returned; every other id has 0, None or NaN."
    ),
}
"""What causes each mistake as a rule, and what to do."""


@attrs.frozen
class Difference:
    """The first difference of two sequences.

    Attributes:
        expected: What must stand there, as ids or as values of a mask.
        found: What was given.
        place: Where they differ first.
    """

    expected: Sequence[Any]
    found: Sequence[Any]
    place: int

    def table(self, text: Callable[[Sequence[int]], str] | None) -> str:
        """Return the places around the first difference, one a line, side by side; `text` decodes ids."""
        first = max(self.place - CONTEXT, 0)
        last = min(self.place + SHOWN, max(len(self.expected), len(self.found)))
        lines = [("place", "expected", "found")]
        for place in range(first, last):
            sides = [_cell(values, place, text) for values in (self.expected, self.found)]
            lines.append((f"{'> ' * (place == self.place)}{place}", sides[0], sides[1]))
        width = max(len(line[1]) for line in lines)
        return "\n".join(f"{place:>9}  {left:<{width}}  {right}" for place, left, right in lines)


def _cell(values: Sequence[Any], place: int, text: Callable[[Sequence[int]], str] | None) -> str:
    """Return one value, with its text if it is an id."""
    if place >= len(values):
        return "(no more)"
    return f"{values[place]}" if text is None else f"{values[place]} {text([values[place]])!r}"


def mistake_in_ids(
    template: Template,
    messages: Sequence[Message],
    part: Part,
    found: Sequence[int],
    place: tuple[int, int],
) -> Mistake:
    """Return what is wrong with ids; `place` is where the part that differs begins, and where it differs."""
    start, differs = place
    if _rendered_again(template, messages, found, differs):
        return _how_rendered(template, messages, found)
    if part.message < 0:
        return Mistake.PROMPT
    rest = found[start:]
    return (
        _in_turn(template, messages, part, rest) if part.sampled else _in_tail(template, messages, part, rest)
    )


def _rendered_again(
    template: Template, messages: Sequence[Message], found: Sequence[int], differs: int
) -> bool:
    """Return whether the ids are a render of the messages, up to the last turn of a row.

    A difference in that last turn is behind the render, which says nothing about it.
    """
    last = len(messages) - (messages[-1]["role"] == "assistant")
    again = template.ids(messages[:last])
    return differs < len(again) and tuple(found[: len(again)]) == again


def _how_rendered(template: Template, messages: Sequence[Message], found: Sequence[int]) -> Mistake:
    """Return whether a render of the history dropped reasoning."""
    text = template.text(found)
    given = [reasoning(message) for message in messages[:-1]]
    lost = any(one.strip() and one.strip() not in text for one in given)
    return Mistake.REASONING_DROPPED if lost else Mistake.RERENDERED


def reasoning(message: Message) -> str:
    """Return the reasoning of a message, under either name; empty without any.

    >>> reasoning({"role": "assistant", "content": "a", "reasoning_content": "b"})
    'b'
    """
    return str(message.get("reasoning_content") or message.get("reasoning") or "")


def _in_turn(template: Template, messages: Sequence[Message], part: Part, rest: Sequence[int]) -> Mistake:
    """Return what is wrong with a sampled turn that begins where `rest` begins."""
    sampled = template.text(part.choices[0])
    text = template.text(rest)
    given = reasoning(messages[part.message]).strip()
    if given and given in sampled and given not in text[: len(sampled)]:
        return Mistake.REASONING_DROPPED
    return Mistake.RERENDERED if sampled and text.startswith(sampled) else Mistake.TURN_CHANGED


def _in_tail(template: Template, messages: Sequence[Message], part: Part, rest: Sequence[int]) -> Mistake:
    """Return what is wrong between two turns, which begins where `rest` begins."""
    added = len(part.choices[0])
    expected, text = template.text(part.choices[0]), template.text(rest)
    new = [one.strip() for message in messages[part.message + 1 :] for one in _texts(message)]
    said = bool(rest) and all(one in text for one in new)
    if said and any(choice[: len(rest)] == tuple(rest) for choice in part.choices):
        return Mistake.GENERATION_PROMPT
    if "".join(text.split()).startswith("".join(expected.split())):
        return Mistake.WHITE_SPACE
    other = _other_start(part, rest)
    if other is not None:
        return Mistake.STOP_TWICE if len(part.whole) - other > added else Mistake.CLOSE_CUT
    return Mistake.SEAM if said else Mistake.MESSAGE_DROPPED


def _texts(message: Message) -> list[str]:
    """Return the texts of a message's content.

    >>> _texts({"content": [{"type": "text", "text": "a"}]}), _texts({"content": "b"}), _texts({})
    (['a'], ['b'], [])
    """
    content = message.get("content") or ()
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if isinstance(part.get("text"), str)]


def _other_start(part: Part, rest: Sequence[int]) -> int | None:
    """Return from which other place on the tail stands in `rest`: with more or less of the close."""
    right = {len(part.whole) - len(choice) for choice in part.choices}
    for start in range(part.close):
        tail = part.whole[start:]
        if start not in right and tuple(rest[: len(tail)]) == tail:
            return start
    return None
