"""Media in messages: when two are the same, and what replaces them in questions to a template.

An image is known by the key that its caller gave it, or by its bytes; how a URL is spelled does not count.
Templates write a placeholder for it and never its data, so that they are asked with the bare kind.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from ..message import MEDIA, Message, is_media, media_in

Path: TypeAlias = tuple[str, ...]
"""Keys, and positions in lists, that lead to a value."""
MODALITIES = ("image", "video", "audio")
DATA = "data:"
UNREAD = ("type", "uuid", "url", "data", "path")
"""Keys of a part that hold its medium, or name it, beside those that `MEDIA` matches."""


@attrs.frozen
class Medium:
    """A medium in a message.

    Attributes:
        modality: `image`, `video` or `audio`; `file` for anything else.
        identity: The caller's `uuid`, or `sha256:` and the digest of its bytes in hexadecimal digits; None
            if the message has neither.
        details: What else the message says about it, such as the `detail` of an image: keys, joined by
            points, and values.
    """

    modality: str
    identity: str | None
    details: tuple[tuple[str, Any], ...] = ()

    @property
    def part(self) -> dict[str, str]:
        """The content part with which templates are asked, which is what engines give them."""
        return {"type": self.modality}


def media_of(messages: Iterable[Message]) -> tuple[Medium, ...]:
    """Return the media of messages, in their order.

    >>> media_of([{"role": "user", "content": [
    ...     {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
    ...     {"type": "image_url", "image_url": None, "uuid": "cat"}]}])  # doctest: +NORMALIZE_WHITESPACE
    (Medium(modality='image',
            identity='sha256:8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4',
            details=(('detail', 'low'),)),
     Medium(modality='image', identity='cat', details=()))
    """
    return tuple(each_medium(messages))


def each_medium(messages: Iterable[Message]) -> Iterator[Medium]:
    """Yield the media of messages, in their order."""
    return (medium_of(part) for message in messages for part in media_in(message))


def medium_of(part: Mapping[str, Any]) -> Medium:
    """Return the medium of a content part that is one (see `tito_core.message.is_media`)."""
    leaves = [(path, value) for path, value in _leaves(part) if value is not None]
    details = ((".".join(_besides(path)), value) for path, value in leaves if not _holds_medium(path))
    return Medium(_modality(part), _identity(part, leaves), tuple(sorted(details, key=repr)))


def _identity(part: Mapping[str, Any], leaves: list[tuple[Path, Any]]) -> str | None:
    key = part.get("uuid")
    if isinstance(part.get("content"), list):  # a part that holds parts, of which some are media
        return None
    if isinstance(key, str) and key:
        return key
    texts = (value for path, value in leaves if isinstance(value, str) and _holds_medium(path))
    data = [text for text in texts if text[:5].lower() == DATA]
    return _digest(data[0]) if len(data) == 1 else None


def _holds_medium(path: Path) -> bool:
    """Return whether a value is the medium itself: by its key, or by that of the list that it is in."""
    named = next((key for key in reversed(path) if not key.isdigit()), "")
    return named in UNREAD or MEDIA.fullmatch(named) is not None


def _besides(path: Path) -> Iterator[str]:
    """Yield the keys of a path but those of objects that hold the medium: clients put details in either."""
    return (key for key in path if key not in UNREAD and not MEDIA.fullmatch(key))


def asked(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose media are bare kinds; the same message if it has none.

    >>> asked({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]})
    {'role': 'user', 'content': [{'type': 'image'}]}
    """
    content = message.get("content")
    if not isinstance(content, list) or not any(map(is_media, content)):
        return message
    return {**message, "content": [medium_of(part).part if is_media(part) else part for part in content]}


def _modality(part: Mapping[str, Any]) -> str:
    """Return the modality that the part's type names, or else one of its keys."""
    names = (part.get("type"), *(name for name, value in part.items() if value is not None))
    named = next((name for name in names if isinstance(name, str) and MEDIA.fullmatch(name)), "")
    return next((one for one in MODALITIES if one in named), "file")


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values in a part that are neither objects nor lists, each with the keys that lead to it."""
    if isinstance(value, Mapping | list):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(inner, (*path, str(key)))
    else:
        yield path, value


def _digest(url: str) -> str | None:
    """Return the digest of the bytes of a data URL in base64, None if it has none that can be read."""
    from hashlib import sha256  # noqa: PLC0415  # only media need it

    header, _, body = url.partition(",")
    try:
        data = binascii.a2b_base64(body, strict_mode=True) if header.lower().endswith(";base64") else b""
    except (binascii.Error, ValueError):  # no base64, or not in ASCII
        return None
    return f"sha256:{sha256(data).hexdigest()}" if data else None
