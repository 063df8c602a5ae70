"""Broken templates and their fixed ones, as `vendor_fixes.toml` has them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.io.lint.lint_folders import EXACT

REFUSED, HISTORY, ADVICE, DIFF, MISSED = "refused cases", "changed history", "advice", "`--diff`", "no"
"""How the broken template is found: cases are refused, or histories change, that the fixed one keeps; there
is advice that the fixed one does not need; only a comparison shows it; nothing does."""


def _template(given: str | Mapping[str, str]) -> str:
    """Return a text, or the usual template with something before it or in place of a part."""
    if isinstance(given, str):
        return given
    assert given.get("old", "") in EXACT
    changed = EXACT.replace(given["old"], given["new"]) if "old" in given else EXACT
    return given.get("before", "") + changed


@attrs.frozen
class Fix:
    """A vendor's kind of fix.

    Attributes:
        cause: What was wrong.
        seen: The models or tools that had it.
        found_by: How lint tells it from the fixed one.
        broken: The template before.
        fixed: The template after.
        why: Why it is not found, or found by comparison only.
    """

    cause: str
    seen: str
    found_by: str
    broken: str = attrs.field(default=EXACT, converter=_template)
    fixed: str = attrs.field(default=EXACT, converter=_template)
    why: str = ""


FIXES = tuple(
    Fix(**one) for one in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["fixes"]
)
