"""Show the progress of a run over a file on a terminal: bytes read and the current step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import attrs
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from tito_io.cli.console import Console

NAME_LENGTH = 24
"""Characters of the file name that the progress line shows."""


@attrs.define(kw_only=True)
class RunProgress:
    """How far a run over one file is. Without `show` it is counted and not displayed.

    Attributes:
        size: Bytes of the file; None where that is unknown, as for a pipe.
        bytes_read: Bytes of the file read so far, compressed ones for a compressed file.
        step: What is being done now, such as `line 3: call 20 of 400`.
        show: Called after each change, with whether to draw it at once.

    >>> str(RunProgress(size=2_000_000, bytes_read=500_000)), str(RunProgress())
    ('500.0 kB of 2.0 MB read (25%)', '0 bytes read')
    """

    size: int | None = None
    bytes_read: int = 0
    step: str = ""
    show: Callable[[RunProgress, bool], None] = attrs.field(default=lambda *_: None, repr=False)

    def on_read(self, count: int, *, draw: bool = False) -> None:
        """Set how many bytes are read."""
        self.bytes_read = count
        self.show(self, draw)

    def on_step(self, step: str, *, draw: bool = False) -> None:
        """Set what is being done now; `draw` shows it at once, before work that holds the interpreter."""
        self.step = step
        self.show(self, draw)

    def __str__(self) -> str:
        if not self.size:
            return f"{decimal(self.bytes_read)} read"
        share = self.bytes_read / self.size
        return f"{decimal(self.bytes_read)} of {decimal(self.size)} read ({share:.0%})"


class _Elapsed(ProgressColumn):
    """The time since the start. Rich's own column stops once all bytes are read, although work goes on."""

    def render(self, task: Task) -> Text:
        return Text(str(timedelta(seconds=int(task.elapsed or 0))))


@contextmanager
def shown_progress(file: Path, *, prints_rows: bool) -> Iterator[RunProgress]:
    """Show progress on standard error while the block runs, if that is a terminal at least 60 columns wide.

    `prints_rows` says that the run writes to standard output. Where that is a terminal too, nothing is shown,
    because a progress line would be drawn over the rows.
    """
    progress = RunProgress(size=file.stat().st_size if file.is_file() else None)
    console = Console(stderr=True)
    if not (console.is_terminal and console.roomy) or (prints_rows and sys.stdout.isatty()):
        yield progress
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        DownloadColumn(),
        _Elapsed(),
        TextColumn("{task.fields[step]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    # Standard output is not redirected: rich would print on standard error what is written there.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        name = file.name if len(file.name) <= NAME_LENGTH else f"{file.name[: NAME_LENGTH - 3]}..."
        task = bar.add_task(name, total=progress.size, step="")

        def show(state: RunProgress, draw: bool) -> None:
            bar.update(task, completed=state.bytes_read, step=state.step, refresh=draw)

        progress.show = show
        yield progress


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "break"), counted(2000, "break")
    ('1 break', '2,000 breaks')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"
