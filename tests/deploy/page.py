"""Files that docs/howto/deploy.md shows, so that the tests run what the page says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "howto" / "deploy.md"
NAME = "tito.example.org"
"""The public name of the gateway on the page."""


def shown(page: str, beginning: str) -> str:
    r"""Return the one fenced block of a page that begins with these letters.

    >>> shown("```sh\nls\n```\n\n```ini\n[Unit]\nA=1\n```\n", "[Unit]")
    '[Unit]\nA=1\n'
    """
    found = [text for text in re.findall(r"(?ms)^```\w*\n(.*?)^```$", page) if text.startswith(beginning)]
    assert len(found) == 1, f"{len(found)} blocks begin with {beginning!r}"
    return str(found[0])


def changed(text: str, replacements: Mapping[str, str]) -> str:
    """Replace what must differ here, each of which must stand in the text.

    >>> changed("listen 443;", {"443": "127.0.0.1:9000"})
    'listen 127.0.0.1:9000;'
    """
    for old, new in replacements.items():
        assert old in text, f"{old!r} does not stand in\n{text}"
        text = text.replace(old, new)
    return text


def from_page(beginning: str, replacements: Mapping[str, str]) -> str:
    """Return a block of the page, changed."""
    return changed(shown(PAGE.read_text(encoding="utf-8"), beginning), replacements)
