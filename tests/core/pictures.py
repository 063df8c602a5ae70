"""A toy model with images: its template writes one placeholder for each, and its engine expands that.

Other templates of it number images, count them, or take only lists of parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tito_core import Message, Step, TemplateRefused
from tito_core.media.expansion import expand
from tito_core.media.ranges import MediaRange

START, PAD, END, OPEN, CLOSE = 300, 301, 302, 303, 304
MARKS = {"<vision>": START, "<pad>": PAD, "</vision>": END, "<turn>": OPEN, "</turn>": CLOSE}
PLACEHOLDERS = {"image": [PAD]}


def encode(text: str) -> list[int]:
    """Return the ids of a text: one for each mark, and one for each byte."""
    pieces = re.split(f"({'|'.join(map(re.escape, MARKS))})", text)
    return [index for one in pieces for index in ([MARKS[one]] if one in MARKS else one.encode())]


def written(content: Any, picture: Callable[[], str]) -> str:
    """Return the text of a content, with `picture` for each image."""
    if not isinstance(content, list):
        return content or ""
    return "".join(part["text"] if part["type"] == "text" else picture() for part in content)


def text_of(messages: Sequence[Message], *, numbered: bool = False) -> str:
    """Return the text of a conversation; `numbered` images say which one they are."""
    shown: list[None] = []

    def picture() -> str:
        shown.append(None)
        return f"{f'Picture {len(shown)}: ' * numbered}<vision><pad></vision>"

    return "".join(f"<turn>{m['role']}\n{written(m.get('content'), picture)}</turn>\n" for m in messages)


def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render and encode."""
    return encode(text_of(messages) + "<turn>assistant\n" * add_generation_prompt)


def numbering(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render with numbered images, and encode."""
    return encode(text_of(messages, numbered=True) + "<turn>assistant\n" * add_generation_prompt)


def in_lists(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render as `tokenize` does, and take only lists of parts."""
    if any(isinstance(message.get("content"), str) for message in messages):
        raise TemplateRefused("a content is a list of parts")
    return tokenize(messages, add_generation_prompt=add_generation_prompt)


def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render as `tokenize` does; after a message that asks how many, say how many images stand before it."""
    count = text_of(messages).count("<pad>")
    last = written(messages[-1].get("content"), str)
    note = f"<turn>system\n{count}</turn>\n" * ("many" in last)
    return encode(text_of(messages) + note + "<turn>assistant\n" * add_generation_prompt)


def image(key: str) -> dict[str, str]:
    """Return a content part that shows an image."""
    return {"type": "image_url", "uuid": key}


def showing(text: str, *keys: str, role: str = "user") -> dict[str, Any]:
    """Return a message with images, and a text after them."""
    return {"role": role, "content": [*map(image, keys), {"type": "text", "text": text}]}


def ranges_of(ids: Sequence[int], keys: Sequence[str]) -> list[MediaRange]:
    """Return the ranges of placeholders in collapsed ids."""
    offsets = [place for place, index in enumerate(ids) if index == PAD]
    return [
        MediaRange(modality="image", identity=key, offset=place, length=1, collapsed=(PAD,))
        for key, place in zip(keys, offsets, strict=True)
    ]


def first_step(
    *messages: Message, keys: Sequence[str] = (), size: int = 4, completion: str = "Seen."
) -> Step:
    """Return a step whose images have `size` ids each."""
    collapsed = tokenize(messages, add_generation_prompt=True)
    ids, ranges = expand(collapsed, ranges_of(collapsed, keys), [(PAD,) * size] * len(keys))
    return Step(
        prompt=messages,
        completion=[{"role": "assistant", "content": completion}],
        prompt_ids=ids,
        completion_ids=[*completion.encode(), CLOSE],
        media=ranges,
    )
