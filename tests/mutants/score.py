"""The mutants that are no faults, and how one is compared with them."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import attrs

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@attrs.frozen
class Judged:
    """A mutant that is no fault, as a person judged.

    Attributes:
        file: Its file.
        change: The lines that change, and what becomes of them.
        function: The function that it is in, where the file has these lines in others, too.
    """

    file: str
    change: str
    function: str | None = None

    def is_one(self, file: str, change: str, function: str) -> bool:
        """Return whether a mutant is this one, by its file, its change and the function that it is in."""
        return (self.file, self.change) == (file, change) and self.function in (None, function)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text as changes have them: without indentation, and with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines()]


def function_at(source: str, line: int) -> str:
    r"""Return the innermost function of a module that a line is in; an empty text outside of all.

    >>> function_at("def f():\n    return 1\n", 2)
    'f'
    """
    functions = (node for node in ast.walk(ast.parse(source)) if isinstance(node, FUNCTIONS))
    around = [one for one in functions if one.lineno <= line <= (one.end_lineno or 0)]
    return max(around, key=lambda one: one.lineno).name if around else ""


def equivalent() -> list[Judged]:
    """Return the mutants that were judged to be no faults; the file says why of each."""
    entries = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    return [Judged(one["file"], one["change"].strip(), one.get("function")) for one in entries if one["why"]]
