"""Read what a toy template writes after a turn from a full render of the real conversation.

Written apart from the kernel, so that tests can compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import TemplateRefused
from .readings import readings
from .toys import Message, Toy
from .toys.page import Page


def true_tails(toy: Toy, prompt: Sequence[Any], matched: int) -> list[tuple[int, ...]] | None:
    """Return what the template truly writes after the first `matched` messages.

    More than one where a careful server has a choice of how to present the same messages; none where every
    presentation loses a new message or the turn itself; `None` where the template refuses the conversation,
    so that there is no truth to compare with.
    """
    rendered = False
    for group in readings(prompt):
        pages = [page for messages in group if (page := rendering(toy, messages)) is not None]
        rendered = rendered or bool(pages)
        tails = {
            tuple(tail) for page in pages if (tail := tail_on(toy, page, matched, len(prompt))) is not None
        }
        if tails:
            return sorted(tails)
    return [] if rendered else None


def pages(toy: Toy, ways: Sequence[Sequence[Message]]) -> list[Page]:
    """Return the pages of those presentations that the template takes."""
    return [page for messages in ways if (page := rendering(toy, messages)) is not None]


def rendering(toy: Toy, messages: Sequence[Message]) -> Page | None:
    """Return the page that the template writes, or None where it refuses."""
    try:
        return toy.page(messages, add_generation_prompt=True)
    except TemplateRefused:
        return None


def tail_on(toy: Toy, page: Page, matched: int, count: int) -> list[int] | None:
    """Return the ids after the words of the last matched message, or None where a new message is lost."""
    turn = page.bodies.get(matched - 1)
    if turn is None or any(index in page.lost for index in range(matched, count)):
        return None
    bodies = [page.bodies.get(index, (0, 0)) for index in range(matched, count)]
    return toy.tokenizer.encode(page.text[turn[1] :]) if min(bodies, default=turn) >= turn else None
