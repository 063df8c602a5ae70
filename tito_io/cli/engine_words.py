"""An engine's own words about what went wrong, short enough for a line.

They may repeat the conversation, so that errors do not hold them: they are for the person at the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import orjson

from tito_io.engines.errors import Complaint

LONGEST = 200
"""The most characters that are shown."""
READ = 1 << 16
"""The most characters of a page that are read."""
TAG = re.compile(r"\s*<[a-z!/?]", re.IGNORECASE)
"""How a page begins."""
UNSAID = frozenset(("script", "style", "head"))
"""Where a page's text is none that a person sees; its title is looked for by itself."""


def words(body: Any) -> str:
    """Return what an answer says, in one line; nothing where it says nothing.

    >>> words({"error": {"message": "KV cache is gone", "code": 500}})
    'KV cache is gone'
    >>> words("<html><head><title>404 Not Found</title></head><body><h1>nginx</h1></body></html>")
    '404 Not Found'
    """
    text = " ".join(_text(body).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rstrip()}..."


def _text(body: Any) -> str:
    if isinstance(body, bytes):
        return _text(body[:READ].decode(errors="replace"))
    if isinstance(body, str):
        return _of_page(body) if TAG.match(body) else body[:READ]
    said = Complaint.of(body).message if isinstance(body, Mapping) else ""
    return said or _json(body)


def _json(body: Any) -> str:
    try:
        return "" if body is None else orjson.dumps(body).decode()
    except TypeError:  # an integer that is wider than any of the library's
        return str(body)


def _of_page(text: str) -> str:
    """Return a page's title, or else the first of its texts; a page that has neither as it is."""
    page = _Page()
    page.feed(text[:READ])
    page.close()
    return " ".join(page.title.split()) or page.first or text[:READ]


class _Page(HTMLParser):
    """Reads a page for its title and its first text, however broken it is."""

    def __init__(self) -> None:
        super().__init__()
        self.title = self.first = ""
        self.inside = ""
        """The tag whose text is read now."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # the base class's
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title += data
        elif self.inside not in UNSAID:
            self.first = self.first or data.strip()
