"""Write files atomically: a temporary file in the same folder is renamed once it is complete.

Two processes that write one file never mix: the file is the one that was complete last. A symbolic link
stays one, and the file that it names is replaced. A pipe or a device is written as it is.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, BinaryIO, NoReturn

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
"""How a temporary file is opened: one that exists, a link included, is never written."""
BINARY: int = getattr(os, "O_BINARY", 0)
"""Windows would write line breaks as two bytes."""
MODE = 0o666
"""The permissions of a new file, from which the process's umask takes some."""
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""The signals that by default end a process without cleaning up; Windows has no SIGHUP."""


@contextmanager
def replaced(path: Path, *, follow: bool = True) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """Open a file that replaces the one at `path` at the end of the block.

    The old file stays if the block raises, if SIGTERM or SIGHUP end the process, or if the function beside
    the file was called. Its permissions are those of the new file. Without `follow`, a symbolic link at
    `path` is replaced itself. Raises `OSError`, with `path` as its file name, if the file cannot be written.
    """
    with named_errors(path):
        old = _status(path) if follow else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        with opened(path, os.O_WRONLY, path) as file:
            yield file, lambda: None
        return
    target, kept = Path(os.path.realpath(path)) if follow else path, list[bool]()
    with _temporary(target) as new:
        with opened(new, NEW, path) as file:
            _copy_mode(old, file)
            yield file, lambda: kept.append(True)
        if not kept:
            with named_errors(path):
                new.replace(target)


def write_atomically(path: Path, content: str | bytes, *, follow: bool = True) -> None:
    """Write a file, text as UTF-8; raises `OSError` as `replaced` does."""
    with replaced(path, follow=follow) as (file, _):
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def opened(path: Path, flags: int, name: Path) -> Iterator[BinaryIO]:
    """Open a file for writing; its errors have `name` as their file name."""
    with named_errors(name):
        file = io.BufferedWriter(NamedFile(os.open(path, flags | BINARY, MODE), name))
    try:
        yield file
    finally:
        with named_errors(name):
            file.close()


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Give an error of the operating system the path that the caller knows."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def open_alone(path: Path) -> BinaryIO:
    """Open a file whose lines are read while it grows, and empty it.

    Raises `BlockingIOError` if another process writes it; on Windows that is not checked.
    """
    with named_errors(path):
        file = io.BufferedWriter(NamedFile(os.open(path, os.O_WRONLY | os.O_CREAT | BINARY, MODE), path))
        try:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                _lock(file)
                file.truncate(0)
        except OSError:
            file.close()
            raise
    return file


def _lock(file: BinaryIO) -> None:
    """Lock a file until it is closed. Windows and some network file systems have no such locks."""
    try:
        import fcntl  # noqa: PLC0415  # Windows has none
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(error.errno, "another process writes it") from error
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
            raise


class NamedFile(io.FileIO):
    """A file whose errors have its name: a full disk does not look like a full standard output."""

    def __init__(self, descriptor: int, name: Path) -> None:
        """Write to an open file, which is closed with this object."""
        super().__init__(descriptor, "wb")
        self._path = name

    def write(self, data: Any, /) -> int:
        """Write bytes."""
        with named_errors(self._path):
            return super().write(data)


def _status(path: Path) -> os.stat_result | None:
    """Return the status of the file that a path names; None if it does not exist."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _copy_mode(old: os.stat_result | None, file: BinaryIO) -> None:
    """Give a file the permissions of the one that it replaces; Windows keeps none."""
    if old is not None and hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))


@contextmanager
def _temporary(target: Path) -> Iterator[Path]:
    """Return an unused path in the folder of `target`; remove its file at the end."""
    new = target.with_name(f".tito-{secrets.token_hex(8)}.part")
    with _signals_raise():
        try:
            yield new
        finally:
            with suppress(OSError):  # mostly it was renamed
                new.unlink()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let signals raise `SystemExit` where by default they would end the process without cleaning up.

    Python handles signals in the main thread only, so that in another one nothing changes.
    """
    own = current_thread() is main_thread()
    found = [one for one in ENDING if own and signal.getsignal(one) is signal.SIG_DFL]
    for one in found:
        signal.signal(one, _exit)
    try:
        yield
    finally:
        for one in found:
            if signal.getsignal(one) is _exit:
                signal.signal(one, signal.SIG_DFL)


def _exit(number: int, _: object) -> NoReturn:
    """End the process with the status that shells use after a signal; another signal changes nothing."""
    for one in ENDING:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)
