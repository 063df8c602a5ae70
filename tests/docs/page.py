"""Run a documentation page: its python and console blocks in order, and compare what they print.

A `python` block runs in the namespace of the blocks before it; a `text` block after it is what it prints.
In a `console` block a line that begins with `$` is a command, and the lines after it are its output, in
which `...` on a line of its own stands for any lines. A command that ends with `&` is a server. Port 8010
becomes a free port. Blocks of other languages do not run.
"""

from __future__ import annotations

import io
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import attrs

FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PORT = "8010"
PATIENCE = 30.0


@attrs.frozen
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    r"""Return the fenced blocks of a page.

    >>> blocks("Hello.\n\n```python\nprint(1)\n```\n")
    [Block(language='python', text='print(1)\n', line=3)]
    """
    return [
        Block(match[1], match[2], page.count("\n", 0, match.start()) + 1) for match in FENCE.finditer(page)
    ]


def run(path: Path, folder: Path) -> int:
    """Run a page in a folder and return how many blocks ran."""
    found = blocks(path.read_text(encoding="utf-8").replace(PORT, str(_free_port())))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    with ExitStack() as stack:
        stack.enter_context(_importing(folder))
        for block, following in zip(found, [*found[1:], None], strict=True):
            if block.language == "python":
                printed = _python(block, path, namespace)
                shown = following.text if following is not None and following.language == "text" else ""
                assert _alike(printed, shown), f"{path}:{block.line} printed\n{printed}"
            elif block.language == "console":
                _console(block, path, folder, stack)
            ran += block.language in ("python", "console")
    return ran


@contextmanager
def _importing(folder: Path) -> Iterator[None]:
    """Let a page import what it wrote into its folder, and forget it afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


def _python(block: Block, path: Path, namespace: dict[str, Any]) -> str:
    code = compile("\n" * block.line + block.text, str(path), "exec")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, namespace)  # noqa: S102  # the project's own pages
    return printed.getvalue()


def _console(block: Block, path: Path, folder: Path, stack: ExitStack) -> None:
    for command, shown in _commands(block.text):
        if command.endswith("&"):
            stack.enter_context(_server(command.removesuffix("&"), folder))
            continue
        done = subprocess.run(
            ["bash", "-c", command],  # noqa: S607  # as a reader would
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        printed = done.stdout + done.stderr
        assert _alike(printed, shown), f"{path}:{block.line}: {command} printed\n{printed}"


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command with its output."""
    for part in re.split(r"(?m)^\$ ", text)[1:]:
        match = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL)
        assert match is not None
        yield match[1].strip(), match[2]


def _alike(printed: str, shown: str) -> bool:
    r"""Compare an output with what a page shows; `...` on a line stands for any lines.

    >>> _alike("a\nb\nc\n", "a\n...\nc\n"), _alike("a\nb\n", "a\n")
    (True, False)
    """
    lines = [line.rstrip() for line in shown.strip().splitlines()]
    pattern = "\n".join(r"(?:.*\n)*.*" if line == "..." else re.escape(line) for line in lines)
    plain = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(pattern, plain) is not None


@contextmanager
def _server(command: str, folder: Path) -> Iterator[None]:
    """Run a server until the page ends; it is up when its port answers."""
    port = int(re.findall(r"--port (\d+)", command)[0])
    with subprocess.Popen(
        ["bash", "-c", f"exec {command}"],  # noqa: S607  # as a reader would
        cwd=folder,
        env=_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            _await(port, process)
            yield
        finally:
            process.terminate()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with status {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"no server at port {port} after {PATIENCE} s")


def _environment() -> dict[str, str]:
    """Return an environment in which `tito` and `python` are those of the tests."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TITO_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
