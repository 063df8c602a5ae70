"""Where rows go: a file of the kind that its name says, or standard output.

A file appears under its name when it is whole, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

import attrs

from tito_core import InputError

from .entry import Entry


class Sink(Protocol):
    """Takes rows one by one."""

    def write(self, entry: Entry) -> None:
        """Take in a row; raises `InputError` for one that the kind of file cannot hold."""

    def finish(self) -> None:
        """Write the file's end."""

    def close(self) -> None:
        """Let go of what is held, whether the file was finished or not."""


@attrs.define
class Counting:
    """A sink that knows how many rows it took."""

    sink: Sink
    rows: int = 0

    def write(self, entry: Entry) -> None:
        """Take in a row."""
        self.sink.write(entry)
        self.rows += 1

    def finish(self) -> None:
        """Write the file's end."""
        self.sink.finish()

    def close(self) -> None:
        """Let go of what is held."""
        self.sink.close()


def _json_lines(file: BinaryIO) -> Sink:
    from .jsonl import JsonLines  # noqa: PLC0415  # each kind of file loads its own libraries, when it is asked for

    return JsonLines(file)


def _parquet(file: BinaryIO) -> Sink:
    from .parquet import Parquet  # noqa: PLC0415  # likewise

    return Parquet(file)


def _safetensors(file: BinaryIO) -> Sink:
    from .tensors import Tensors  # noqa: PLC0415  # likewise

    return Tensors(file)


KINDS: dict[str, Callable[[BinaryIO], Sink]] = {
    ".jsonl": _json_lines,
    ".parquet": _parquet,
    ".safetensors": _safetensors,
}


def kind_of(path: Path) -> Callable[[BinaryIO], Sink]:
    """Return what makes a file of the kind that a name says; raises `InputError` where it says none."""
    made = KINDS.get(path.suffix)
    if made is None:
        raise InputError(f"{path} ends in none of {', '.join(KINDS)}: name the kind of file so")
    return made


@contextmanager
def opened(path: Path | None, stdout: BinaryIO, *, spare: bool = False) -> Iterator[Sink]:
    """Open what rows are written to; without a path JSON lines go to `stdout`.

    Raises `InputError` where the file cannot be written. Where something else goes wrong on the way, and with
    `spare` also where no row comes, the file that stood there stays.
    """
    if path is None:
        yield _json_lines(stdout)
        return
    make, part = kind_of(path), path.with_name(path.name + ".part")
    try:
        file = part.open("wb")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    try:
        with file, closing(make(file)) as sink:
            counting = Counting(sink)
            yield counting
            sink.finish()
        if counting.rows or not spare or not path.exists():
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
