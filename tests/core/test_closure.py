"""What a call of `stitch` or `Bridge` loads stays small: one can read, vendor and review the kernel whole."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import tito_core

SOURCE = Path(tito_core.__file__).parent
MOST = 3713
"""Code lines, docstrings and comments left out."""
PROGRAM = """
import sys
from tests.core import example
from tito_core import Bridge, stitch, suffix_ids

step = example.step()
assert stitch([step], example.prompt(step), suffix_ids(example.tokenize), example.tokenize)
assert Bridge(example.tokenize).extend(step.ids, example.prompt(step)[-1:]).ids
print(*(module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "tito_core"))
"""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def docstring_lines(tree: ast.AST) -> set[int]:
    """Return the lines of strings that stand alone: docstrings of modules, classes, functions and names."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(text: str) -> int:
    """Count the lines with code.

    >>> code_lines('x = 1  # one' + chr(10) * 2 + '# two' + chr(10) + 'y = [' + chr(10) + ']')
    3
    """
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - docstring_lines(ast.parse(text)))


def test_a_stitch_and_a_bridge_load_the_kernel_alone(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    files = [Path(name) for name in done.stdout.split()]
    counted = {path.relative_to(SOURCE): code_lines(path.read_text()) for path in files}
    with capsys.disabled():
        print(f"\na stitch and a bridge load {len(counted)} files with {sum(counted.values()):,} code lines")  # noqa: T201  # the figure is what a reader of the test run wants
    assert {path.parts[0] for path in counted if len(path.parts) > 1} == {"media", "normalization", "seams"}
    assert sum(counted.values()) <= MOST
