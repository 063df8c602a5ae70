"""The notebook runs as it stands, and prints what it shows."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent.parent / "docs" / "first-hour.ipynb"


def test_the_notebook_prints_what_it_shows() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    namespace: dict[str, Any] = {}
    with asyncio.Runner() as runner:
        printed = [_run(runner, "".join(cell["source"]), namespace) for cell in code]
    assert len(code) > 3
    assert printed == [_shown(cell) for cell in code]


def _run(runner: asyncio.Runner, source: str, namespace: dict[str, Any]) -> str:
    """Run a cell as a notebook does, in whose cells `await` may stand, and return what it prints."""
    compiled = compile(source, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found = eval(compiled, namespace)  # noqa: S307  # the project's own page
        if inspect.iscoroutine(found):
            runner.run(found)
    return printed.getvalue()


def _shown(cell: dict[str, Any]) -> str:
    return "".join(line for output in cell["outputs"] for line in output["text"])
