"""Jinja templates of the pages and pictures that benchmarks write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

import tito_io

ESCAPED = ("html.jinja", "svg.jinja")


def environment(folder: Path, **more: Any) -> Environment:
    """Return the templates of a folder, beside those of `tito_io`: HTML and SVG are escaped, Markdown is not.

    Args:
        folder: Where the templates are.
        more: What else Jinja takes.
    """
    return Environment(
        loader=FileSystemLoader([folder, Path(tito_io.__file__).parent]),
        autoescape=select_autoescape(ESCAPED),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **more,
    )
