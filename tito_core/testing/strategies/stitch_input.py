"""Stored steps and the prompt that continues one of them.

Steps are prefixes of the prompt, in any order and among steps that nearly match, because faults of a matcher
show there. Messages come back in every form that serializers give them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ...step import Step
from ..toys import TOYS, Toy
from .choices import CHOICES, Draw
from .message import Chat, draw_assistant, draw_conversation, speech
from .respelling import edited, respelled
from .sampled import completed, ended, rendered, right_stop, sampled_words


@attrs.frozen
class StitchInput:
    """Arguments of a stitch, and the toy that they belong to.

    Attributes:
        toy: The chat template and tokenizer.
        steps: Steps that were recorded, in any order.
        prompt: The messages of the next prompt, in any spelling.
        key: What the prompt is rendered with beside its messages; None for nothing.
    """

    toy: Toy
    steps: list[Step]
    prompt: list[Any]
    key: str | None = None

    @property
    def suffix(self) -> tuple[int, ...]:
        """The family's own close."""
        return self.toy.suffix


def draw_step(draw: Draw, toy: Toy, chat: Chat, position: int, key: str | None = None) -> Step:
    """Draw the call that answered with the message at `position`, its history in some spelling."""
    messages = [respelled(draw(CHOICES), message) for message in chat[: position + 1]]
    ids, truncated = completed(draw(CHOICES), toy, chat, position)
    return Step(
        prompt=messages[:-1],
        completion=messages[-1:],
        prompt_ids=rendered(toy, chat[:position]),
        completion_ids=ids,
        truncated=truncated,
        key=key,
    )


NOISE = ("again", "edited", "edited", "longer", "whole", "split oddly", "other key")


def draw_noise_step(draw: Draw, toy: Toy, chat: Chat, key: str | None) -> Step:
    """Draw a step that looks like the others and should not be used, or only by its rules."""
    chosen = draw(CHOICES)
    kind, position = chosen.pick(NOISE), chosen.pick(range(len(chat)))
    if kind == "edited":
        place = chosen.pick(range(position + 1))
        changed = [*chat[:place], edited(draw(CHOICES), chat[place]), *chat[place + 1 :]]
        return draw_step(draw, toy, changed, position, key)
    if kind == "longer":
        longer = [*chat, draw_assistant(draw), speech(draw(CHOICES)), draw_assistant(draw)]
        return draw_step(draw, toy, longer, len(chat) + chosen.pick((0, 1, 2)), key)
    if kind == "whole":
        return draw_step(draw, toy, chat, len(chat) - 1, key)
    if kind == "other key":
        return draw_step(draw, toy, chat, position, f"not {key}")
    step = draw_step(draw, toy, chat, position, key)
    if kind == "split oddly":
        cut = chosen.pick(range(position + 2))
        return attrs.evolve(step, prompt=chat[:cut], completion=chat[cut : position + 1])
    return step


@st.composite
def stitch_inputs(draw: DrawFn, toys: Sequence[Toy] = TOYS) -> StitchInput:
    """Draw a conversation, and steps that are prefixes of it, in any order and among such as nearly match.

    Args:
        toys: The toys to draw from.
    """
    toy = draw(st.sampled_from(toys))
    chat = draw_conversation(draw, toy)
    chosen = draw(CHOICES)
    key = chosen.pick((None, None, "tools"))
    answered = [index for index, message in enumerate(chat) if message["role"] == "assistant"]
    kept = [index for index in answered if not chosen.once_in(5)]
    steps = [draw_step(draw, toy, chat, index, key) for index in kept]
    steps += [draw_noise_step(draw, toy, chat, key) for _ in range(chosen.pick((0, 0, 1, 2)))]
    prompt = [respelled(draw(CHOICES), message) for message in chat]
    return StitchInput(toy, chosen.turned(steps), prompt, key)


@st.composite
def tidy_stitch_inputs(draw: DrawFn, toys: Sequence[Toy] = TOYS) -> StitchInput:
    """Draw a conversation of which every turn was sampled to its right stop: the kernel often answers.

    Args:
        toys: The toys to draw from.
    """
    toy = draw(st.sampled_from(toys))
    chat = draw_conversation(draw, toy)
    steps = []
    for index in [index for index, message in enumerate(chat) if message["role"] == "assistant"]:
        words = sampled_words(toy, chat[: index + 1], index)
        sampled = ended(toy, words, right_stop(toy, chat, index))
        prompt_ids = rendered(toy, chat[:index])
        steps.append(
            Step(
                prompt=chat[:index],
                completion=chat[index : index + 1],
                prompt_ids=prompt_ids,
                completion_ids=sampled,
            )
        )
    return StitchInput(toy, steps, chat)


ANY_INPUT = stitch_inputs()
TIDY_INPUT = tidy_stitch_inputs()
INPUT_OF = {toy.name: stitch_inputs((toy,)) for toy in TOYS}
TIDY_INPUT_OF = {toy.name: tidy_stitch_inputs((toy,)) for toy in TOYS}
"""One strategy object for each: building strategies costs more than drawing from them."""
