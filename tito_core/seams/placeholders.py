"""Placeholders: where in a proven tail a template writes the media of the new messages.

A placeholder says neither for which medium it stands nor who wrote it: a text may spell one. So each medium
is replaced by a word, and exactly its placeholder must go. The last comes first, and stays replaced: what a
template writes of a later one, such as its number, may depend on those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from ..errors import TemplateRefused
from ..media.ranges import MediaRange, Placeholders
from ..message import is_media
from ..normalization.media import Medium
from ..questions import Questions, in_parts, relayed
from ..refusal import Reason, Refusal
from .prove import Proof
from .seam import OTHER, common_prefix
from .turn import Environment

WORD = {"type": "text", "text": OTHER}
"""What stands in place of a medium."""
NOT_ITS_OWN = Refusal(Reason.PLACEHOLDERS, "a placeholder is not what the template writes for its medium")


def unplaced(media: tuple[Medium, ...], placeholders: Placeholders) -> Refusal | None:
    """Return why media cannot be placed, None if they can."""
    for medium in media:
        if placeholders.ids(medium.modality) is None:
            return Refusal(Reason.MULTIMODAL, f"no placeholder is given for {medium.modality} parts")
        if medium.identity is None:
            kind = medium.modality
            return Refusal(Reason.MULTIMODAL, f"the {kind} has neither bytes, in a data URL, nor a `uuid`")
    return None


def placed_questions(
    proof: Proof, media: tuple[Medium, ...], placeholders: Placeholders
) -> Questions[Proof | Refusal]:
    """Ask which placeholder in the tail stands for which of `media`: one question for each."""
    found = placeholders.find(proof.ids)
    if [name for _, name in found] != [medium.modality for medium in media]:
        return Refusal(
            Reason.PLACEHOLDERS, f"{len(found)} placeholders stand for {len(media)} media of the new messages"
        )
    ids = proof.ids
    for number, (place, name) in reversed(list(enumerate(found))):
        asking = proof.tail_of_questions(replaced(proof.located.environment, number))
        try:
            other = yield from relayed(asking, in_parts) if proof.parts else asking
        except TemplateRefused as refused:
            return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
        size, left = len(placeholders.ids(name) or ()), found[: number + 1]
        if not other or not is_alone(place, size, left, *differing(ids, other)):
            return NOT_ITS_OWN
        ids = other
    return attrs.evolve(proof, media=ranges_at(found, media, placeholders))


def is_alone(place: int, size: int, found: Sequence[tuple[int, str]], start: int, stop: int) -> bool:
    """Return whether the placeholder at `place`, and no other, stands from `start` to `stop`."""
    touched = [one for one, _ in found if start < one + size and one < stop]
    return touched == [place] and start <= place and place + size <= stop


def ranges_at(
    found: Sequence[tuple[int, str]], media: tuple[Medium, ...], placeholders: Placeholders
) -> tuple[MediaRange, ...]:
    """Return the ranges of media whose placeholders were found, each for its medium."""
    return tuple(
        MediaRange(
            modality=medium.modality,
            identity=medium.identity or "",
            offset=place,
            length=len(placeholders.ids(medium.modality) or ()),
            collapsed=placeholders.ids(medium.modality) or (),
        )
        for medium, (place, _) in zip(media, found, strict=True)
    )


def differing(ids: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """Return from where to where `ids` differ from others."""
    start = common_prefix(ids, other)
    end = common_prefix(ids[start:][::-1], other[start:][::-1])
    return start, len(ids) - end


def replaced(environment: Environment, number: int) -> Environment:
    """Return the environment with a word in place of each medium from that `number` on."""
    changed: list[dict[str, Any]] = []
    for message in environment:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        places = [place for place, part in enumerate(parts) if is_media(part)]
        gone = frozenset(places[max(number, 0) :])
        number -= len(places)
        new = [WORD if place in gone else part for place, part in enumerate(parts)]
        changed.append({**message, "content": new} if gone else message)
    return tuple(changed)
