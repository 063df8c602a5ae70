"""The reference and the troubleshooting page leave out no public name and no reason."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from tito_core import Reason
from tito_io.cli.group import COMMANDS

DOCS = Path(__file__).parent.parent.parent / "docs"
ROOMS = (
    "tito_core",
    "tito_core.samples",
    "tito_core.drift",
    "tito_io.client",
    "tito_io.embedded",
    "tito_io.families",
)
NAMED = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_has_every_public_name(room: str) -> None:
    names = set(import_module(room).__all__) - PLAIN
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"auto\w+:: ([\w.]+)", NAMED))))
    assert sorted(names - listed) == []


PLAIN = frozenset(("AsyncTokenizeFn", "Message", "Questions", "TIDY", "MODEL", "MAX_MODEL_LEN"))
"""Type aliases and constants, which pages name where they are used."""


def test_every_reason_has_advice() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    assert [reason.name for reason in Reason if f"| `{reason.name}` |" not in page] == []


def test_the_command_line_reference_is_of_the_whole_group() -> None:
    assert ":nested: full" in (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert len(COMMANDS) >= 5


def test_the_glossary_defines_each_word_once_and_in_order() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"(?m)^- \*\*([\w ]+)\*\*: ", text)
    assert len(terms) > 30
    assert terms == sorted(set(terms), key=str.lower)


def test_the_error_texts_that_the_troubleshooting_page_quotes_are_in_the_code() -> None:
    root = DOCS.parent
    modules = [path for room in ("tito_core", "tito_io") for path in (root / room).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules]
    nodes = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = "\n".join(text for text in nodes if isinstance(text, str))
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    quotes = re.findall(r"(?m)^- \*\*`(?:\w+Error: )?([^`]+)`|^\| [\d, ]+ \| `([^`]+)` \|", page)
    parts = [part.strip() for bold, cell in quotes for part in re.split(r"\.\.\.|[\[\]:]", bold or cell)]
    missing = [part for part in parts if " " in part and not part.startswith("tito ") and part not in texts]
    assert len(parts) > 10
    assert missing == []
