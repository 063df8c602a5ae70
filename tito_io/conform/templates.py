"""Chat templates of the vectors, and the tokens of their toy tokenizer, read from `templates.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

_DATA = tomllib.loads(files(__package__).joinpath("templates.toml").read_text(encoding="utf-8"))


def _filled(text: str, fragments: Mapping[str, str]) -> str:
    """Return a text without its line breaks, with its fragments and theirs."""
    joined = "".join(text.splitlines())
    return joined if "${" not in joined else _filled(Template(joined).substitute(fragments), fragments)


def _template(parts: Mapping[str, Any]) -> str:
    fragments = {**_DATA["fragments"], **_DATA["parts"], **parts}
    return _filled(fragments["whole"], fragments)


SPECIAL: tuple[str, ...] = tuple(_DATA["special"])
"""Special tokens of all templates."""
MERGED: tuple[str, ...] = tuple(_DATA["merged"])
"""Tokens of several bytes."""
TEMPLATES: dict[str, str] = {name: _template(parts) for name, parts in _DATA["templates"].items()}
"""The templates by name."""
STOPS: dict[str, tuple[str, ...]] = {
    name: tuple(parts.get("stops", _DATA["stops"])) for name, parts in _DATA["templates"].items()
}
"""Tokens that end turns, by template."""
