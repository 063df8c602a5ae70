"""What an engine samples for a turn: unusual tokenizations, and every way in which a turn ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ..readings import readings
from ..tails import rendering, true_tails
from ..toys import Message, Toy
from .choices import Choices
from .message import Chat


@st.composite
def tokenizations(draw: DrawFn, text: str, encode: Callable[[str], Sequence[int]]) -> list[int]:
    """Draw ids of a text: the tokenizer's own, or those of its pieces, as a model may sample them.

    Args:
        text: The text.
        encode: Returns the ids of a text without adding special tokens, such as
            `lambda text: tokenizer.encode(text, add_special_tokens=False)`.
    """
    cuts = sorted(draw(st.sets(st.integers(1, max(len(text) - 1, 1)), max_size=4)))
    pieces = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    return [index for piece in pieces if piece for index in encode(piece)]


ENDINGS = (
    "right",
    "right",
    "right",
    "any stop",
    "whole close",
    "close and opener",
    "cut",
    "cut at a close",
    "nothing",
)


def shown(toy: Toy, messages: Sequence[Message]) -> list[Message] | None:
    """Return the first presentation of a conversation that the template takes."""
    ways = (way for group in readings(messages) for way in group)
    return next((way for way in ways if rendering(toy, way) is not None), None)


def rendered(toy: Toy, messages: Sequence[Message]) -> list[int]:
    """Return the ids of a prompt, or a stand-in where the template refuses it."""
    taken = shown(toy, messages)
    return [3, 1, 4] if taken is None else toy(taken, add_generation_prompt=True)


def sampled_words(toy: Toy, messages: Sequence[Message], mask: int) -> list[int]:
    """Return ids for the last message of a conversation, or a stand-in where the template refuses it."""
    taken = shown(toy, messages)
    return [1, 5, 9] if taken is None else toy.sample(taken, mask=mask)


def completed(choices: Choices, toy: Toy, chat: Chat, position: int) -> tuple[list[int], bool]:
    """Return ids for the assistant message at `position`, and whether the turn was cut short."""
    ending, mask = choices.pick(ENDINGS), choices.pick(range(8))
    words = sampled_words(toy, chat[: position + 1], mask)
    if ending == "right":
        return ended(toy, words, right_stop(toy, chat, position)), False
    if ending == "any stop":
        return [*words, choices.pick((*toy.stop_ids, 999))], False
    if ending == "whole close":
        return [*words, *toy.suffix], choices.once_in(4)
    if ending == "close and opener":
        tails = true_tails(toy, chat, position + 1) or [()]
        return [*words, *tails[0][: len(toy.suffix) + 1]], False
    if ending == "nothing":
        return [], choices.once_in(2)
    kept = words[: choices.pick(range(len(words) + 1))]
    part = toy.suffix[: choices.pick(range(len(toy.suffix) + 1))] if ending == "cut at a close" else ()
    return [*kept, *part], not choices.once_in(5)


def right_stop(toy: Toy, chat: Chat, position: int) -> list[int]:
    """Return what the template itself would have written after the turn, up to the first stop."""
    tails = true_tails(toy, chat, position + 1)
    if not tails:
        return list(toy.stop_ids[:1])
    stops = [place for place, index in enumerate(tails[0][: len(toy.suffix)]) if index in toy.stop_ids]
    return list(tails[0][: 1 + min(stops, default=0)])


def ended(toy: Toy, words: list[int], stop: list[int]) -> list[int]:
    """Return words and their stop as a model samples them: the last word and a close's text may be one id."""
    try:
        return [*words[:-1], *toy.tokenizer.encode(toy.tokenizer.decode([*words[-1:], *stop]))]
    except ValueError:  # the words are stand-ins without a text
        return [*words, *stop]
