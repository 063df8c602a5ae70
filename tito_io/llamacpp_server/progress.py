"""Show on stderr how much of a model is loaded."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic

from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from tito_io.cli.console import Console
from tito_io.cli.errors import complain

from .settings import ServerSettings

_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


def resident_bytes(pid: int) -> int | None:
    """Return how much of a process is in memory; None where the system does not say.

    llama.cpp maps the file into memory, and reads it in order: so this is how far it is.
    """
    with suppress(OSError):
        found = _RESIDENT.search(Path(f"/proc/{pid}/status").read_text())
        return None if found is None else int(found[1]) * 1024
    return None


@contextmanager
def loading_shown(settings: ServerSettings) -> Iterator[Callable[[subprocess.Popen[str]], None]]:
    """Lend what shows the progress of a server's start: a bar on a terminal, else two lines."""
    console, size, start = Console(stderr=True), settings.size, monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    with bar if console.is_terminal else nullcontext():  # rich 13 writes a line of a disabled one, too
        task = bar.add_task(f"loading {settings.name}", total=size)
        if not console.is_terminal:
            complain(f"loading {settings.file} ({decimal(size)}) with llama.cpp")

        def show(process: subprocess.Popen[str]) -> None:
            done = resident_bytes(process.pid)
            bar.update(task, completed=None if done is None else min(done, size))

        yield show
    complain(f"loaded {settings.file} in {monotonic() - start:.1f} s")
