"""Media on pages: one block in place of all ids of an image, with the picture where its bytes are known."""

from __future__ import annotations

import re
from binascii import Error, a2b_base64

import attrs

from tito_core.media.ranges import MediaRange

IDENTITY_CHARACTERS = 24
"""How much of an identity is shown; all of it is in the block's title."""
PICTURE_CHARACTERS = 4_000_000
"""Characters of the longest data URL that is shown."""
_DATA = re.compile(r"data:image/(png|jpeg|webp|gif);base64,([A-Za-z0-9+/]+={0,2})", re.ASCII)
_SIGNATURES = {
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    "gif": re.compile(rb"GIF8[79]a"),
}
"""How files of each format begin."""
_HEAD = 64
"""Characters of base64 that hold more than any of these beginnings."""


@attrs.frozen(kw_only=True)
class MediaBlock:
    """What a page shows in place of the ids of a medium.

    Attributes:
        range: Where the medium stands, and which one it is.
        placeholder: The text that the template writes for it.
        picture: A data URL that `picture_url` returned; None where the picture cannot be shown.
    """

    range: MediaRange
    placeholder: str
    picture: str | None = None

    @property
    def name(self) -> str:
        """The beginning of its identity."""
        return short_identity(self.range.identity)


def short_identity(identity: str) -> str:
    """Return the beginning of an identity on one line.

    >>> short_identity("sha256:8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4")
    'sha256:8f434346648f6b96d…'
    >>> short_identity("cat")
    'cat'
    """
    words = " ".join(identity[: 4 * IDENTITY_CHARACTERS].split())
    whole = len(identity) <= IDENTITY_CHARACTERS
    return words if whole else words[:IDENTITY_CHARACTERS] + "…"


def picture_url(url: str | None) -> str | None:
    """Return a data URL if a page may show it as a picture, else None.

    Only PNG, JPEG, WebP and GIF are shown, in base64, and only if the bytes begin like the named format. So
    an SVG, which may hold a script, is never shown, and nothing is fetched.

    >>> picture_url("data:image/gif;base64,R0lGODlhAQABAAAAACw=")
    'data:image/gif;base64,R0lGODlhAQABAAAAACw='
    >>> picture_url("data:image/svg+xml;base64,PHN2Zy8+"), picture_url("https://example.org/cat.png")
    (None, None)
    """
    found = _DATA.fullmatch(url) if url is not None and len(url) <= PICTURE_CHARACTERS else None
    if found is None:
        return None
    kind, body = found.groups()
    try:
        begins = a2b_base64(body[:_HEAD], strict_mode=True)
    except Error:
        return None
    return url if _SIGNATURES[kind].match(begins) else None
