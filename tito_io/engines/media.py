"""Media beside ids: what an engine is given, and what is checked before and after.

An engine that expands media itself takes ids with one placeholder for each medium, and the media in their
order. It answers the ids that it made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from tito_core import Ids, InputError, Message, Reason, Refusal
from tito_core.media.expansion import expand, pieces_in
from tito_core.media.ranges import Media, Placeholders
from tito_core.media.wider_ranges import ranges_seen
from tito_core.message import is_media, is_multimodal

from .protocol import (
    Engine,
    InvalidReplyError,
    PromptMedium,
    Rendering,
    Reply,
    SampleRequest,
    UnsupportedError,
)
from .replies.invariants import Check


class MediaUnsupportedError(UnsupportedError):
    """This engine, or its route, takes no such media beside ids. Nothing was sampled: send messages."""


BLANK = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAADgAAAA4CAIAAAAn5KxJAAAAQ0lEQVR42u3OMQ0AAAgDsN3zLwpZHKgg"
    "aVIBTTsvRFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRUVFRU9CzYb4eX2yWhuAAAAABJRU5ErkJggg=="
)
"""An image of one colour, which stands for any where only the placeholder counts."""


class PlaceholderEngine(Protocol):
    """An engine that renders images as the template writes them, before it expands them."""

    async def render_placeholders(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        media: Placeholders,
        *,
        add_generation_prompt: bool,
    ) -> Sequence[int]:
        """Return the ids of messages whose images are `{"type": "image"}`, with the placeholder of each.

        Raises `TemplateRefused` where the template, or the server, does not take them.
        """


def check_answers(engine: Engine, refusal: Refusal) -> None:
    """Raise `UnsupportedError` if an engine would never answer messages that do not go by ids for `refusal`.

    Such messages spell an image's placeholder in a text. An engine whose `answers_stray_placeholders` is
    False waits for the image that it stands for.
    """
    if refusal.reason is Reason.PLACEHOLDERS and not answers_stray_placeholders(engine):
        raise UnsupportedError(
            f"{engine.name} never answers messages with images in which a text spells an image's "
            f"placeholder ({refusal.detail}): take it out of the text, or end the conversation. Nothing was "
            "sent",
            parameter="messages",
        )


def answers_stray_placeholders(engine: Engine) -> bool:
    """Return whether an engine answers messages in which a text spells an image's placeholder."""
    return bool(getattr(engine, "answers_stray_placeholders", True))


def with_blanks(messages: Sequence[Message]) -> list[Message]:
    """Return messages with an image of one colour for each image.

    >>> with_blanks([{"role": "user", "content": [{"type": "image"}]}])[0]["content"][0]["uuid"]
    'tito-blank'
    """
    blank = {"type": "image_url", "image_url": {"url": BLANK}, "uuid": "tito-blank"}
    return [
        {**message, "content": [blank if is_media(part) else part for part in message["content"]]}
        if isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


async def rendered(engine: Engine, request: SampleRequest, refusal: UnsupportedError) -> SampleRequest:
    """Return a request for messages as one for their ids, as `engine` renders them; media raise `refusal`."""
    messages = request.messages or ()
    if is_multimodal(messages):
        raise refusal
    return request.after(await engine.render(messages, request.rendered_with, add_generation_prompt=True))


def unsupported(name: str, problem: str = "takes no media beside ids") -> MediaUnsupportedError:
    """Return the error of an engine called `name`."""
    return MediaUnsupportedError(f"{name} {problem}. Nothing was sampled", parameter="media")


def check_places(ids: Ids, media: Sequence[PromptMedium]) -> None:
    """Raise `InputError` unless each medium has its placeholder in `ids`, and no other stands there.

    Engines put the media where they find placeholders, whichever those are: one that was sampled, or that a
    text spells, would get an image, and the answer would look as if nothing were wrong.
    """
    ranges = Media.of([one.place for one in media])
    for number, one in enumerate(ranges):
        if tuple(ids[one.offset : one.stop]) != one.collapsed:
            raise InputError(
                f"media[{number}]: its placeholder is not at {one.offset} of the ids: give collapsed ids, as "
                "tito_core.media.expansion.collapse returns them. Nothing was sent"
            )
    # An id beside an image may belong to it: the shortest is the placeholder alone, if any is.
    longest_first = sorted(ranges, key=lambda one: -len(one.collapsed))
    stray = Placeholders.of({one.modality: one.collapsed for one in longest_first})
    place = None if stray is None else stray.stray(ids, ranges)
    if place is not None:
        raise InputError(
            f"ids: a placeholder at {place} stands for none of the {len(media)} media; an engine would put "
            "one there. Nothing was sent"
        )


def check_seen(
    check: Check,
    ids: Sequence[int],
    media: Sequence[PromptMedium],
    seen: Sequence[int],
    ranges: Sequence[tuple[int, int]] | None,
) -> None:
    """Raise `InvalidReplyError` unless an engine's prompt is what was sent, but for the media.

    An id beside a medium may have become one with the medium's own. `ranges` are the offset and length of
    each medium in the ids that it has `seen`; None if it does not say.
    """
    places = [one.place for one in media]
    try:
        if ranges is None:
            pieces = pieces_in(ids, places, seen)
        else:
            places = ranges_seen(ids, places, seen, ranges) or places
            pieces = [tuple(seen[offset : offset + length]) for offset, length in ranges]
        whole, found = expand(ids, places, pieces)
    except InputError as error:
        check.fail(f"the engine made another prompt of the ids and media: {error}")
    if whole != list(seen) or ranges not in (None, [(one.offset, one.length) for one in found]):
        check.fail(
            f"the engine made another prompt of the ids and media ({len(seen)} ids of {len(ids)}): ids "
            "outside of the media changed, or a medium stands elsewhere"
        )


def checked_reply(
    check: Check,
    reply: Reply,
    ids: Sequence[int],
    media: Sequence[PromptMedium],
    ranges: Sequence[tuple[int, int]] | None,
) -> Reply:
    """Return a reply with its media's ranges, checked; an error holds the reply in `partial`."""
    try:
        check_seen(check, ids, media, reply.prompt_ids, ranges)
    except InvalidReplyError as error:
        error.partial = reply
        raise
    return attrs.evolve(reply, media_ranges=None if ranges is None else tuple(ranges))
