"""The model stays short enough to be read at one sitting."""

from __future__ import annotations

import ast
import tokenize
from pathlib import Path

import pytest

MODEL = sorted(Path(__file__).parent.parent.glob("*.py"))
MOST = 600
"""Logical lines of code: a statement that is written over several lines counts once."""


def logical_lines(path: Path) -> int:
    """Return the logical lines of a file without docstrings and comments."""
    tree, text = ast.parse(path.read_text()), set[int]()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            text |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    return sum(token.type == tokenize.NEWLINE and token.start[0] not in text for token in tokens)


def test_the_model_is_short() -> None:
    assert sum(map(logical_lines, MODEL)) <= MOST


@pytest.mark.parametrize("path", MODEL, ids=lambda path: path.name)
def test_the_model_does_not_use_what_it_judges(path: Path) -> None:
    """It takes the kernel's values, errors and enumerations, and none of its functions."""
    allowed = {
        "Policy",
        "Step",
        "OddStop",
        "Truncated",
        "TemplateRefused",
        "StoredCall",
        "SampleOptions",
        "Cut",
        "Owner",
    }
    allowed |= {"ConversationScope", "Retries", "Rewards", "RowPer", "TurnRule"}
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    taken = {
        one.name for node in imports if (node.module or "").startswith("tito_core") for one in node.names
    }
    assert taken <= allowed
