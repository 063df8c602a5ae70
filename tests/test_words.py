"""Names and prose are plain: no metaphor names anything, and each sentence is read once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    path for room in ("tito_core", "tito_io", "benchmarks") for path in (ROOT / room).rglob("*.py")
)
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted(ROOT.glob("[A-Z]*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = frozenset(
    re.findall(
        r"\w+",
        "told retold door tap fleet thrift dice held made scene talk manner manners heard babble kindred "
        "trouble somebody nobody whoever",
    )
)
"""Words that may be no part of a name; each has a plain one in the glossary or in the field."""
FOREIGN = frozenset(("connection_made",))
"""Names that a library gives to what a class here must define."""
PROSE = re.compile(
    r"\b(?:is|are|was|were) (?-i:none)\b|\btold\b|\bnobody\b|\banybody\b|\bwhoever\b"
    r"|, and (?:no|never) more\b"
    r"|\bbabbl\w+|\bat the door\b|\bin the manner of\b|\bwithout a (?:word|thought)\b|\btells? of\b",
    re.IGNORECASE,
)
"""Turns of phrase that have to be read twice."""
LONGEST = 35
"""Words in a sentence of a docstring."""


def names(tree: ast.AST) -> Iterator[str]:
    """Yield every name that a module gives to something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def words(name: str) -> list[str]:
    """Split a name into lower-case words.

    >>> words("_HTTPDoor_held")
    ['http', 'door', 'held']
    """
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def prose(tree: ast.AST, text: str) -> Iterator[str]:
    """Yield docstrings, texts and comments; examples in docstrings left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"(?m)^\s*(>>>|\.\.\.).*$", "", node.value)
    yield from re.findall(r"(?m)(?:^|\s)#( .*)$", text)


def sentences(tree: ast.AST) -> Iterator[str]:
    """Yield the sentences of docstrings, their examples, lists and code left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            told = ast.get_docstring(node) or ""
            for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:>>>|[-*] |\w+: ))", told.split(">>>")[0]):
                yield from re.split(r"(?<=[.:;?!])\s+", paragraph)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_names_things_plainly(path: Path) -> None:
    tree = ast.parse(path.read_text())
    parts = {word for name in {*names(tree), path.stem} - FOREIGN for word in words(name)}
    assert sorted(parts & NAMES) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_written_plainly(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert [found.group(0) for part in prose(tree, text) for found in PROSE.finditer(part)] == []
    assert [one for one in sentences(tree) if len(one.split()) > LONGEST] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_written_plainly(path: Path) -> None:
    assert [found.group(0) for found in PROSE.finditer(path.read_text())] == []
