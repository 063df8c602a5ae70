"""The message in an engine's error response, short enough for one line.

The message may repeat the conversation. So errors, which get logged, do not hold it; it is printed only for
the person at the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import orjson

from tito_io.engines.errors import Complaint

LONGEST = 200
"""The most characters that are printed."""
READ = 1 << 16
"""The most characters of a response that are read."""
TAG = re.compile(r"\s*<[a-z!/?]", re.IGNORECASE)
"""The beginning of an HTML page: proxies answer with pages."""
HIDDEN = frozenset(("script", "style", "head"))
"""Elements whose text a browser does not show. A page's title is read separately."""


def words(body: Any) -> str:
    """Return the message of an error response's `body`, which may be empty.

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
        return _page_text(body[:READ]) if TAG.match(body) else body[:READ]
    message = Complaint.of(body).message if isinstance(body, Mapping) else ""
    try:
        return message or ("" if body is None else orjson.dumps(body).decode())
    except TypeError:  # orjson writes no integer of more than 64 bits
        return str(body)


def _page_text(text: str) -> str:
    """Return a page's title, else its first text, else the page itself."""
    page = _Page()
    page.feed(text)
    page.close()
    return " ".join(page.title.split()) or page.first or text


class _Page(HTMLParser):
    """Reads the title and the first text of a page, however broken it is."""

    def __init__(self) -> None:
        super().__init__()
        self.title = self.first = ""
        self.inside = ""
        """The element whose text is read now."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # the base class's
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title += data
        elif self.inside not in HIDDEN:
            self.first = self.first or data.strip()
