"""Images of conversations: their bytes by identity, and turns whose ids go with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs

from tito_core import InputError, Message, Refusal
from tito_core.join import NextPrompt
from tito_core.media.expansion import collapse, echoed
from tito_core.media.ranges import PlaceholderIds, Placeholders
from tito_core.media.wider_ranges import ranges_seen, widened
from tito_core.message import is_multimodal, media_in
from tito_core.normalization.media import DATA, Medium, medium_of
from tito_core.refusal import Reason
from tito_io.engines.media import MediaUnsupportedError, unsupported
from tito_io.engines.protocol import (
    Engine,
    EngineAnswer,
    InvalidReplyError,
    PromptMedium,
    Rendering,
    Reply,
    SampleRequest,
)

P = TypeVar("P", bound=NextPrompt)
Beside: TypeAlias = tuple[list[int], list[PromptMedium]]
"""The ids that are sent of a prompt, and the images that are sent beside them."""

DETAIL = "detail"
"""OpenAI's setting of an image. Engines that expand images beside ids have no such setting."""
DETAIL_IGNORED = "media-detail-ignored"
"""The notice that an image's `detail` went nowhere."""


def as_placeholders(given: PlaceholderIds | None) -> Placeholders | None:
    """Return the ids that a template writes for images, checked; None for None."""
    return Placeholders.of(given)


@attrs.define
class KnownMedia:
    """The data URLs of images that conversations had, by identity; the oldest are forgotten.

    Attributes:
        most: How many characters of URLs are kept.

    >>> known = KnownMedia()
    >>> known.learn([{"role": "user", "content": [
    ...     {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}, "uuid": "cat"}]}])
    >>> known.url("cat"), known.url("dog")
    ('data:image/png;base64,aGk=', None)
    """

    most: int = 1 << 28
    _urls: dict[str, str] = attrs.field(factory=dict, repr=False)
    _size: int = attrs.field(init=False)

    @_size.default
    def _characters(self) -> int:
        return sum(map(len, self._urls.values()))

    def check(self, messages: Iterable[Message]) -> None:
        """Raise `InputError` for a data URL in messages that is not the base64 that it says it is.

        Nothing else finds it: such an image has no identity, and would go by messages to an engine that
        rejects it, perhaps without saying why.
        """
        for medium, url in images_in(messages):
            if url is None or (medium.identity is not None and self.url(medium.identity) == url):
                continue
            header = url.partition(",")[0]
            if header.lower().endswith(";base64") and _bytes_of(url) is None:
                raise InputError(
                    "an image's data URL is no valid base64: encode all bytes of the file, with padding and "
                    "without line breaks"
                )

    def learn(self, messages: Iterable[Message]) -> None:
        """Keep the bytes of the images in messages.

        Raises:
            InputError: An identity has other bytes than before. A server would go on showing the old ones.
        """
        for medium, url in images_in(messages):
            if url is not None and medium.identity is not None:
                self._keep(medium.identity, url)

    def url(self, identity: str) -> str | None:
        """Return the data URL of an image; None if it is not known."""
        return self._urls.get(identity)

    def _keep(self, identity: str, url: str) -> None:
        old = self._urls.pop(identity, None)
        if old is not None and old != url and _bytes_of(old) != _bytes_of(url):
            self._urls[identity] = old
            raise InputError(
                "an image has the `uuid` of another one: servers show the first image for it; give each "
                "image its own `uuid`, or leave it out"
            )
        self._urls[identity] = url
        self._size += len(url) - len(old or "")
        while self._size > self.most and len(self._urls) > 1:
            self._size -= len(self._urls.pop(next(iter(self._urls))))

    def beside(self, prompt: NextPrompt, messages: Sequence[Message]) -> Beside:
        """Return the ids to send of a prompt, and its images with their bytes.

        Args:
            prompt: The prompt, with the range of each image.
            messages: All of its messages.

        Raises:
            InputError: An image's bytes are neither in the messages nor known from earlier ones.
        """
        ids, places = collapse(prompt.ids, prompt.media)
        urls = {one.identity: self.url(one.identity) for one in places}
        if None in urls.values():  # forgotten, or another client took the earlier turns
            urls |= {medium.identity or "": url for medium, url in images_in(messages) if url is not None}
        for number, one in enumerate(places):
            if urls[one.identity] is None:
                raise InputError(f"image {number + 1} of the prompt {_lacking(one.identity, messages)}")
        return ids, [PromptMedium(place=one, url=urls[one.identity]) for one in places]


@attrs.frozen
class PlaceholderRender:
    """Renders messages with the engine, images as the template writes them.

    Attributes:
        engine: The engine; `render_placeholders` says whether it can.
        rendering: Tools and arguments of the template.
        media: The ids that the template writes for an image.
    """

    engine: Any
    rendering: Rendering
    media: Placeholders

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        """Return the ids of messages; raises `TemplateRefused` where they are not taken."""
        options = {"add_generation_prompt": add_generation_prompt}
        ids: Sequence[int]
        if is_multimodal(messages):
            ids = await self.engine.render_placeholders(messages, self.rendering, self.media, **options)
        else:
            ids = await self.engine.render(messages, self.rendering, **options)
        return ids


def renders_placeholders(engine: Engine) -> bool:
    """Return whether an engine renders images as the template writes them."""
    return hasattr(engine, "render_placeholders")


def images_in(messages: Iterable[Message]) -> Iterator[tuple[Medium, str | None]]:
    """Yield the media of messages, each with its data URL if it has one."""
    for message in messages:
        for part in media_in(message):
            urls = (text for text in _texts(part) if text[: len(DATA)].lower() == DATA)
            yield medium_of(part), next(urls, None)


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a content part, such as its addresses."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)


def _bytes_of(url: str) -> str | None:
    """Return the digest of a data URL's bytes."""
    return medium_of({"type": "image", "url": url}).identity


def _lacking(identity: str, messages: Sequence[Message]) -> str:
    """Return what an image without bytes lacks, and what to do."""
    parts = (part for message in messages for part in media_in(message))
    texts = (text for part in parts if medium_of(part).identity == identity for text in _texts(part))
    if any(text[:8].lower().startswith(("http://", "https://")) for text in texts):
        return (
            "is named by an address, which is not fetched here, and its bytes go beside the ids: fetch it, "
            "and give its data URL once, with the same `uuid`"
        )
    known = "has a `uuid` and no bytes, and none are known from earlier turns of this client"
    return f"{known}: give its data URL once"


def unsent_settings(messages: Iterable[Message]) -> tuple[Refusal | None, bool]:
    """Return why images have to go by messages, if they have to; and whether a `detail` is ignored.

    >>> part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}}
    >>> unsent_settings([{"role": "user", "content": [part]}])
    (None, True)
    """
    names = {name for medium, _ in images_in(messages) for name, _ in medium.details}
    if names - {DETAIL}:
        return Refusal(Reason.MULTIMODAL, "an image has settings, which go by messages alone"), False
    return None, DETAIL in names


async def sampled_with_media(
    engine: Engine, prompt: P, beside: Beside, request: SampleRequest
) -> tuple[P, Reply] | Refusal:
    """Sample a turn after a prompt with images; return the prompt as the engine saw it, and the reply.

    The result is a refusal, and nothing was sampled, if the engine takes no images beside ids.

    Raises:
        InvalidReplyError: The engine saw another prompt; `partial` holds its reply.
    """
    ids, media = beside
    try:
        if not engine.takes_media:
            raise unsupported(engine.name)
        reply = await engine.sample(attrs.evolve(request.after(ids), media=media))
    except MediaUnsupportedError as error:
        return Refusal(Reason.MULTIMODAL, f"{error!s:.200}")
    try:
        return echoed(_as_seen(prompt, beside, reply), reply.prompt_ids, reply.media_ranges), reply
    except InputError as error:
        invalid = InvalidReplyError(f"{engine.name}: {error}", EngineAnswer(200, reply.raw))
        invalid.partial = reply
        raise invalid from error


def _as_seen(prompt: P, beside: Beside, reply: Reply) -> P:
    """Return a prompt whose new images have the ids beside them that the engine merged with their own."""
    ids, media = beside
    if reply.media_ranges is None:
        return prompt
    places = [one.place for one in media]
    ranges = ranges_seen(ids, places, reply.prompt_ids, reply.media_ranges)
    if ranges is None:
        return prompt
    base, older = len(ids) - len(prompt.added), len(prompt.media) - prompt.unexpanded
    return widened(prompt, [one.moved(-base) for one in ranges[older:]]) or prompt
