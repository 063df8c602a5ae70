"""Images in a framework's messages: each gets a name by its pixels or bytes, and goes to the processor apart.

Frameworks put images into content parts as objects of PIL, as bytes or as data URLs. Messages with names in
place of images are what the kernel compares, and what templates are asked with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from attrs import frozen

from tito_core import Message
from tito_core.message import is_media
from tito_core.normalization.media import medium_of

IMAGE = "image"
HOLDERS = (IMAGE, "image_url", "url", "data", "path")
"""Keys of a content part that hold an image or its address, in the order in which they are read."""
PALETTES = ("P", "PA")
"""Modes of PIL in which pixels are places in a palette."""


@frozen
class Shown:
    """Messages, and the images in them.

    Attributes:
        messages: Copies with `{"type": "image", "uuid": ...}` for each image. One without a `uuid` is neither
            pixels nor bytes, and has no key of its caller's; the kernel refuses it.
        images: The images, in their order: objects, bytes, data URLs or addresses, as the framework has them.
    """

    messages: list[dict[str, Any]]
    images: list[Any]

    @classmethod
    def of(
        cls,
        messages: Sequence[Message],
        objects: Sequence[Any] = (),
        *,
        names: Sequence[str] = (),
    ) -> Shown:
        """Take the images out of messages. Other media stay where they are.

        Args:
            messages: The messages.
            objects: The images again, in their order, for parts that hold none or an address.
            names: Names of the images, in their order, for parts that have none of their own.

        >>> parts = [{"type": "image", "image": b"..."}, {"type": "text", "text": "What is it?"}]
        >>> shown = Shown.of([{"role": "user", "content": parts}])
        >>> shown.images, shown.messages[0]["content"][0]["uuid"][:14]
        ([b'...'], 'sha256:ab5df62')
        """
        taker = _Taker(objects, names)
        return cls([taker.named(message) for message in messages], taker.images)


class _Taker:
    """Takes images out of messages, one after the other."""

    def __init__(self, objects: Sequence[Any], names: Sequence[str]) -> None:
        self.images: list[Any] = []
        self.objects, self.names = objects, names

    def named(self, message: Message) -> dict[str, Any]:
        """Return a message with names for its images."""
        content = message.get("content")
        if not isinstance(content, list | tuple):
            return dict(message)
        return {**message, "content": [self._named_part(part) for part in content]}

    def _named_part(self, part: Any) -> Any:
        if not is_media(part):
            return part
        medium = medium_of(part)
        if medium.modality != IMAGE:
            return part
        place = len(self.images)
        image = image_in(part)
        # the caller's key or the bytes of a data URL, the pixels, what the framework made of an address
        name = medium.identity or digest(image)
        name = name or next((digest(one) for one in self.objects[place : place + 1]), None)
        name = name or next(iter(self.names[place : place + 1]), None)
        self.images.append(image)
        return {"type": IMAGE} if name is None else {"type": IMAGE, "uuid": name}


def image_in(part: Mapping[str, Any]) -> Any:
    """Return the image, or its address, that a content part holds; None if it holds none.

    >>> image_in({"type": "image_url", "image_url": {"url": "data:..."}})
    'data:...'
    """
    found = next((part[key] for key in HOLDERS if part.get(key) is not None), None)
    return image_in(found) if isinstance(found, Mapping) else found


def digest(image: Any) -> str | None:
    """Return the digest of an image's bytes, or of its pixels with size and mode; None if it has neither.

    >>> digest(b"...")[:14], digest("cat.png")
    ('sha256:ab5df62', None)
    """
    if isinstance(image, bytes | bytearray):
        return f"sha256:{sha256(image).hexdigest()}"
    if getattr(image, "mode", None) in PALETTES:  # equal places in two palettes are other colours
        image = image.convert("RGBA")
    described = [getattr(image, name, None) for name in ("mode", "size", "dtype", "shape")]
    if not callable(getattr(image, "tobytes", None)) or described[1] is None:
        return None
    found = sha256(repr([str(one) for one in described]).encode())
    found.update(image.tobytes())
    return f"pixels:{found.hexdigest()}"
