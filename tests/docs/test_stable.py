"""Pages import stable names alone; one that shows a provisional name says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.release.public_api import STABLE, stable_names

from .page import blocks

ROOT = Path(__file__).parent.parent.parent
NAMES = stable_names()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def imported(code: str) -> Iterator[str]:
    r"""Yield the names that a page's code imports from this project.

    >>> sorted(imported("import tito_core\nfrom tito_io import Family, VLLM\nfrom os import path"))
    ['tito_core', 'tito_io.Family', 'tito_io.VLLM']
    """
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.startswith("tito_"))
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("tito_"):
            yield from (f"{node.module}.{one.name}" for one in node.names)


def imports(page: Path) -> set[str]:
    found = blocks(page.read_text(encoding="utf-8"))
    return {name for block in found if block.language == "python" for name in imported(block.text)}


@pytest.mark.parametrize("page", [one for one in PAGES if imports(one)], ids=lambda page: page.stem)
def test_a_page_imports_stable_names(page: Path) -> None:
    others = imports(page) - NAMES - {*STABLE["modules"]}
    said = "provisional](../compatibility.md#" in page.read_text(encoding="utf-8")
    assert said == bool(others), f"stable is what docs/reference/stable.toml lists: {sorted(others)}"


def test_most_pages_have_code() -> None:
    assert sum(len(imports(page)) for page in PAGES) > 100


def test_the_kernel_and_what_most_programs_need_is_stable() -> None:
    assert {"tito_core", "tito_io"} <= {*STABLE["modules"]}
