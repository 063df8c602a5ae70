"""Images of a session: their bytes are kept once, by digest, and messages name them.

Agents send each image again with every request. Its data URL is replaced by its digest before the prompt is
read, so that a session's messages stay small, in memory and in the store. Engines get the bytes: beside ids,
or put back into the messages.

A key (`uuid`) that a client gives is left out: engines believe that equal keys mean equal bytes, and keep
them for all conversations.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import attrs

from tito_core import InputError, Message
from tito_core.message import MEDIA, is_media
from tito_core.normalization.media import medium_of

from .refusals import bad_request

KEY = "uuid"
IMAGE = "image_url"
"""The key of an image in a content part of OpenAI's chat API, which all dialects become."""
DATA = "data:"
MIME = re.compile(r"[a-z]{1,40}/[a-z0-9][a-z0-9.+-]{0,80}")
UNKNOWN = "application/octet-stream"


@attrs.frozen
class MediumBytes:
    """The bytes of a medium, as a session keeps them.

    Attributes:
        mime: Their type, such as `image/png`.
        data: The bytes.

    >>> MediumBytes.of_url("data:image/png;base64,aGk=")
    MediumBytes(mime='image/png', data=b'hi')
    """

    mime: str
    data: bytes

    @classmethod
    def of_url(cls, url: str) -> Self:
        """Return the bytes of a data URL in base64; raises `InputError` for another URL."""
        head, _, body = url.partition(",")
        mime = head[len(DATA) :].partition(";")[0].lower()
        try:
            return cls(mime if MIME.fullmatch(mime) else UNKNOWN, b64decode(body, validate=True))
        except (binascii.Error, ValueError) as error:
            raise InputError("a medium's data URL is not base64: give its bytes in base64") from error

    @property
    def url(self) -> str:
        """The data URL."""
        return f"{DATA}{self.mime};base64,{b64encode(self.data).decode()}"

    def encoded(self) -> bytes:
        """Return type and bytes as a store keeps them."""
        return b"%b\n%b" % (self.mime.encode(), self.data)

    @classmethod
    def decoded(cls, stored: bytes) -> Self:
        """Return what a store kept."""
        mime, _, data = stored.partition(b"\n")
        return cls(mime.decode(), data)


@attrs.frozen(kw_only=True)
class NamedMedia:
    """Messages whose images are named by digest.

    Attributes:
        messages: The messages.
        urls: Data URLs of the images by digest.
        new: The bytes of the images that the session does not have, by digest.
        addresses: Digests of the images that were fetched, by address.
    """

    messages: Sequence[Message]
    urls: Mapping[str, str] = attrs.field(factory=dict)
    new: Mapping[str, MediumBytes] = attrs.field(factory=dict)
    addresses: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def unsent(self) -> set[str]:
        """Digests that the messages name, and whose bytes the request does not have."""
        named = (part[KEY] for part in media_parts(self.messages) if isinstance(part.get(KEY), str))
        return set(named).difference(self.urls)


NO_MEDIA = NamedMedia(messages=())


def named_media(
    messages: Sequence[Message], known: Container[str], fetched: Mapping[str, str] | None = None
) -> NamedMedia:
    """Return messages whose media are named by digest.

    Args:
        messages: The messages of a request.
        known: Digests of media that the session has; a part may name one of these in place of its bytes.
        fetched: Data URLs, or the digests of known media, by address.

    Raises:
        RequestRefused: A part names a medium that the session does not have.

    >>> part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}, "uuid": "mine"}
    >>> named = named_media([{"role": "user", "content": [part]}], ())
    >>> named.messages[0]["content"][0]["uuid"][:15], list(named.urls.values())
    ('sha256:8f434346', ['data:image/png;base64,aGk='])
    """
    naming = _Naming(known, fetched or {})
    named = [with_media(message, naming.part) for message in messages]
    new = {digest: MediumBytes.of_url(url) for digest, url in naming.urls.items() if digest not in known}
    return NamedMedia(messages=named, urls=naming.urls, new=new, addresses=naming.addresses)


@attrs.define
class _Naming:
    known: Container[str]
    fetched: Mapping[str, str]
    urls: dict[str, str] = attrs.field(factory=dict, init=False)
    addresses: dict[str, str] = attrs.field(factory=dict, init=False)

    def part(self, part: dict[str, Any]) -> dict[str, Any]:
        """Return a medium under its digest; one whose bytes are not known stays as it came, without a key."""
        key, bare = part.get(KEY), {name: value for name, value in part.items() if name != KEY}
        where, medium = address(bare), medium_of(bare)
        identity = medium.identity if medium.modality == "image" else None
        if identity is not None and where is not None and where[: len(DATA)].lower() == DATA:
            self.urls.setdefault(identity, where)
            return {**with_address(bare, identity), KEY: identity}
        if where is not None and where in self.fetched:
            return {**bare, KEY: self._of_address(where)}
        if key is None and medium.modality == "image" and where in self.known:
            key = where
        if key is None or where not in (None, key) or (where is None and _holds_bytes(bare)):
            return bare
        if not isinstance(key, str) or key not in self.known or medium.modality != "image":
            text = f"one {medium.modality} of the prompt has a `{KEY}` that this session does not know"
            raise bad_request(f"{KEY}: {text}, and no bytes: give its data URL once", KEY)
        return {**with_address(bare, key), KEY: key}

    def _of_address(self, where: str) -> str:
        found = self.fetched[where]
        if found.startswith(DATA):
            identity = medium_of({"url": found}).identity
            if identity is None:
                raise bad_request(
                    "messages: an image that was fetched has no bytes; send its data URL", "messages"
                )
            self.urls[identity], self.addresses[where] = found, identity
            return identity
        return found


def restored(messages: Sequence[Message], urls: Mapping[str, str]) -> list[Message]:
    """Return messages with the data URLs of named media, as engines take them.

    >>> part = {"type": "image_url", "image_url": {"url": "sha256:8f"}, "uuid": "sha256:8f"}
    >>> restored([{"role": "user", "content": [part]}], {"sha256:8f": "data:image/png;base64,aGk="})
    [{'role': 'user', 'content': [{'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,aGk='}}]}]
    """

    def part_of(part: dict[str, Any]) -> dict[str, Any]:
        url = urls.get(part[KEY]) if isinstance(part.get(KEY), str) else None
        bare = {name: value for name, value in part.items() if name != KEY}
        return part if url is None else with_address(bare, url)

    return [with_media(message, part_of) for message in messages]


def with_media(holder: Message, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Message:
    """Return a message, or a part that holds parts, whose media were changed; itself if it has none."""
    content = holder.get("content")
    if not isinstance(content, list) or not any(map(is_media, content)):
        return holder
    changed = [change(dict(with_media(part, change))) if is_media(part) else part for part in content]
    return {**holder, "content": changed}


def media_parts(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """Yield the content parts of messages that are media, and after a part those that it holds."""
    for message in messages:
        content = message.get("content")
        for part in filter(is_media, content) if isinstance(content, list) else ():
            yield part
            yield from media_parts((part,))


def addresses_in(messages: Iterable[Message]) -> dict[str, str]:
    """Return the digests of media that were fetched, by address: their messages have both.

    >>> part = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}, "uuid": "sha256:8f"}
    >>> addresses_in([{"role": "user", "content": [part]}])
    {'https://example.org/cat.png': 'sha256:8f'}
    """
    found = ((address(part), part.get(KEY)) for part in media_parts(messages))
    return {where: key for where, key in found if where is not None and key is not None and where != key}


def address(part: Mapping[str, Any]) -> str | None:
    """Return the URL of an image, or the digest in its place; None for a part without one.

    >>> address({"type": "image_url", "image_url": {"url": "https://example.org/cat.png", "detail": "low"}})
    'https://example.org/cat.png'
    """
    image = part.get(IMAGE)
    url = image.get("url") if isinstance(image, Mapping) else image
    return url if isinstance(url, str) else None


def with_address(part: Mapping[str, Any], url: str) -> dict[str, Any]:
    """Return an image with another URL, as a text or in an object: engines may take one of them alone."""
    image = part.get(IMAGE)
    if isinstance(image, str):
        return {**part, IMAGE: url}
    return {**part, IMAGE: {**(image if isinstance(image, Mapping) else {}), "url": url}}


def _holds_bytes(part: Mapping[str, Any]) -> bool:
    """Return whether a part holds more than an image: another medium, or parts of its own."""
    others = (name for name, value in part.items() if value is not None and name not in ("type", IMAGE))
    return any(
        name in ("content", "data", "path", "source", "url") or MEDIA.fullmatch(name) for name in others
    )
