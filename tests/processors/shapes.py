"""Conversations with images, and what becomes of them: exact, refused or wrong.

The measure is the processor's own call for the whole text with all images, which a trainer
makes that keeps no ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import attrs

from tito_core import Message, Policy, Refusal, Step, Truncated, try_stitch
from tito_core.media.expansion import collapse
from tito_io.families import Family, TokenizerFamily
from tito_io.families.chat_tokenizer import one_list

SIZES = {"wide": (150, 60), "tall": (40, 120), "small": (30, 30)}
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@attrs.frozen
class Turn:
    """New messages, and the turn that the model says to them.

    Attributes:
        new: The messages.
        said: The model's turn.
        text: What was sampled before the stop.
        truncated: Whether the turn was cut short.
    """

    new: Sequence[Message]
    said: Message = attrs.field(factory=lambda: {"role": "assistant", "content": "I see."})
    text: str = "I see."
    truncated: bool = False


def showing(*parts: str, role: str = "user", **more: Any) -> dict[str, Any]:
    """Return a message; the names of images among its parts are images."""
    content = [
        {"type": "image_url", "uuid": part} if part in SIZES else {"type": "text", "text": part}
        for part in parts
    ]
    return {"role": role, "content": content, **more}


HELLO, MORE = showing("Hello."), showing("And now?")
SHAPES: Mapping[str, Sequence[Turn]] = {
    "first turn": [Turn([showing("wide", "What is it?")])],
    "two in the first turn": [Turn([showing("wide", "small", "What is it?")])],
    "image after text": [Turn([HELLO]), Turn([showing("What is it?", "tall")])],
    "second turn": [Turn([HELLO]), Turn([showing("wide", "What is it?")])],
    "third turn": [Turn([showing("wide", "A?")]), Turn([MORE]), Turn([showing("tall", "B?")])],
    "two in one": [Turn([showing("wide", "A?")]), Turn([showing("tall", "small", "B?")])],
    "same twice": [Turn([showing("wide", "A?")]), Turn([showing("wide", "B?")])],
    "tool result": [
        Turn(
            [HELLO],
            {"role": "assistant", "content": "So.", "tool_calls": [CALL]},
            "So.\n<call>look</call>",
        ),
        Turn([showing("tall", "Done.", role="tool", tool_call_id="call_1")]),
    ],
    "after a cut turn": [
        Turn([showing("wide", "A?")], {"role": "assistant", "content": "I se"}, "I se", truncated=True),
        Turn([showing("tall", "B?")]),
    ],
    "after reasoning": [
        Turn(
            [showing("wide", "A?")],
            {"role": "assistant", "content": "I see.", "reasoning_content": "Hm."},
            "<think>Hm.</think>\n\nI see.",
        ),
        Turn([showing("tall", "B?")]),
    ],
}


@attrs.frozen
class Verdict:
    """What became of a conversation.

    Attributes:
        word: `exact`, `refused` or `wrong`.
        why: Why it was refused.
    """

    word: str
    why: str = ""


def verdicts(processor: Any, image: Callable[[tuple[int, int]], Any], **options: Any) -> dict[str, Verdict]:
    """Return what becomes of each conversation.

    `image` makes an image of a size, and `options` are further arguments of the processor's call.
    """
    family = Family.of(processor)
    return {name: judged(family, processor, turns, image, **options) for name, turns in SHAPES.items()}


def judged(
    family: TokenizerFamily,
    processor: Any,
    turns: Sequence[Turn],
    image: Callable[[tuple[int, int]], Any],
    **options: Any,
) -> Verdict:
    """Play a conversation, and compare each prompt with the processor's call for the whole of it."""
    steps: list[Step] = []
    images: list[Any] = []
    for turn in turns:
        new = [image(SIZES[name]) for name in names(turn.new)]
        images += new
        step = _next(family, steps, turn, new, options)
        if isinstance(step, Refusal):
            return Verdict("refused", step.detail)
        text = family.decode(collapse(step.prompt_ids, step.media)[0])
        if step.prompt_ids != whole(processor, text, images, **options):
            return Verdict("wrong")
        steps.append(step)
    return Verdict("exact")


def whole(processor: Any, text: str, images: Sequence[Any], **options: Any) -> list[int]:
    """Return the ids of a whole text with all its images, as the processor gives them."""
    shown = {"images": [list(images)]} if images else {}
    return one_list(processor(text=text, add_special_tokens=False, **shown, **options), "the processor")


def picture(size: tuple[int, int]) -> Any:
    """Return an image of a size."""
    image: Any = import_module("PIL.Image")
    return image.new("RGB", size)


def drawn(name: str) -> Any:
    """Return the image of a name, which is not like those of other names."""
    image = picture(SIZES[name])
    image.putpixel((0, 0), (list(SIZES).index(name), 0, 0))
    return image


def shown(messages: Sequence[Message]) -> list[Any]:
    """Return messages with the images that their parts name."""
    return [
        {
            **message,
            "content": [
                {"type": "image", "image": drawn(part["uuid"])} if "uuid" in part else part
                for part in message["content"]
            ],
        }
        for message in messages
    ]


def names(messages: Sequence[Message]) -> list[str]:
    """Return the names of the images in messages."""
    return [part["uuid"] for message in messages for part in message["content"] if "uuid" in part]


def _next(
    family: TokenizerFamily, steps: Sequence[Step], turn: Turn, images: Sequence[Any], options: Any
) -> Step | Refusal:
    """Return the next step; the first one by the processor's whole call."""
    stop = [] if turn.truncated else family.suffix()[:1]
    sampled = [*family.encode(turn.text), *stop]
    if not steps:
        first = family.first_prompt(turn.new, images, processor_args=options)
        if isinstance(first, Refusal):
            return first
        return Step(
            prompt=turn.new,
            completion=[turn.said],
            prompt_ids=first.ids,
            completion_ids=sampled,
            media=first.media,
            truncated=turn.truncated,
        )
    found = try_stitch(
        steps,
        [*steps[-1].messages, *turn.new],
        family.suffix(),
        family.tokenize_fn(),
        policy=Policy(truncated=Truncated.CLOSE),
        media=family.placeholders(),
    )
    grown = found if isinstance(found, Refusal) else family.expand(found, images, processor_args=options)
    if isinstance(grown, Refusal):
        return grown
    return grown.prompt.then(completion=[turn.said], completion_ids=sampled, truncated=turn.truncated)
