"""Sphinx settings. Build with `python -m sphinx -W -b html docs docs/_build/html`."""

from __future__ import annotations

import re
from typing import Any

import attrs

from tito_core import __version__

project = "tito"
copyright = "the tito authors"  # noqa: A001  # Sphinx reads it by this name
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
]
exclude_patterns = ["_build", "**/__pycache__"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

default_role = "literal"  # docstrings write code in single backticks
napoleon_use_ivar = True  # attributes are listed once, in the class
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "tito"


def shown_defaults(kind: type[attrs.AttrsInstance], signature: str) -> str:
    """Return a class's signature with its defaults in place of the names that attrs gives them."""
    fields = {field.alias: field for field in attrs.fields(kind)}
    by_name = {field.name: field for field in fields.values()}

    def made(found: re.Match[str]) -> str:
        factory = fields[found[1]].default
        name = getattr(getattr(factory, "factory", None), "__name__", "")
        return f"{found[1]}{found[2]} = {name}()" if name.isidentifier() else f"{found[1]}{found[2]} = ..."

    signature = re.sub(
        r"attr_dict\['(\w+)'\]\.default", lambda found: repr(by_name[found[1]].default), signature
    )
    return re.sub(r"(\w+)(: [^=>]*?)? = NOTHING", made, signature)


def setup(app: Any) -> None:
    """Keep docstrings of properties as they are, and lead links to included files to their pages.

    Napoleon takes words before a colon for a type.
    """
    written: dict[str, list[str]] = {}

    def keep(_: Any, what: str, name: str, _object: Any, _options: Any, lines: list[str]) -> None:
        if what in ("attribute", "property"):
            written[name] = list(lines)

    def restore(_: Any, _what: str, name: str, _object: Any, _options: Any, lines: list[str]) -> None:
        if name in written:
            lines[:] = written.pop(name)

    def defaults(_: Any, _what: str, _name: str, thing: Any, _options: Any, text: str, result: Any) -> Any:
        return shown_defaults(thing, text) if text and attrs.has(thing) else text, result

    def link(_: Any, _docname: str, source: list[str]) -> None:
        # A forge shows the README of the vectors where it lies; here a page includes it.
        source[0] = source[0].replace("](../../tito_io/conform/README.md)", "](/reference/vectors.md)")

    app.connect("source-read", link)
    app.connect("autodoc-process-signature", defaults)
    app.connect("autodoc-process-docstring", keep, priority=400)  # napoleon's is 500
    app.connect("autodoc-process-docstring", restore, priority=600)
