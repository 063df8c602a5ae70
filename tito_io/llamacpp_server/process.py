"""Start llama.cpp's server as a child process, wait until the model is loaded, and stop it at the end.

It is a process of its own because the library holds the interpreter while it loads, and because an error in
its compiled code ends the process that it runs in.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO

from attrs import define, field, frozen

from tito_core import InputError
from tito_io.engines.protocol import EngineError
from tito_io.extras import missing

from .settings import ServerSettings

CHILD = Path(__file__).with_name("child.py")
TAIL = 12
"""Lines of the server's log that an error shows."""
POLL = 0.2
"""Seconds between two looks at how far the server is."""
GRACE = 10.0
"""Seconds for the process to end after its input was closed; then it is killed."""


class ServerStartError(EngineError):
    """llama.cpp's server ended before it answered.

    Attributes:
        log: The last lines that it wrote.
    """

    def __init__(self, message: str, log: Sequence[str] = ()) -> None:
        """Store the text and the log."""
        super().__init__(message)
        self.log = tuple(log)


@frozen
class LlamaCppServer:
    """A running server.

    Attributes:
        url: Its address, on the loopback interface.
        api_key: The key that it asks for: other users of the machine have none.
        process: The process that it runs in.
        log: The last lines that it wrote.
    """

    url: str
    api_key: str = field(repr=False)
    process: subprocess.Popen[str] = field(repr=False)
    log: deque[str] = field(repr=False)


def _ignore(_: subprocess.Popen[str]) -> None:
    """Do nothing."""


@contextmanager
def running(
    settings: ServerSettings, *, waiting: Callable[[subprocess.Popen[str]], None] = _ignore
) -> Iterator[LlamaCppServer]:
    """Lend a server that has loaded its model; it is stopped however the block ends.

    It also ends if this process is killed: on Linux at once, elsewhere as soon as the model is loaded.

    Args:
        settings: The file, and how it is served.
        waiting: Called with the process several times a second while the model is loaded.

    Raises:
        InputError: xllamacpp is not installed, or the settings cannot work.
        FolderError: The file is no GGUF file.
        ServerStartError: The server ended before it answered.
    """
    settings.checked()
    if find_spec("xllamacpp") is None:
        raise InputError(missing("xllamacpp"))
    with _spawned() as process:
        child = _Child(process)
        try:
            yield child.started(settings, waiting)
        finally:
            child.stop()


def _spawned() -> subprocess.Popen[str]:
    """Start the process; it waits for its settings."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-P", str(CHILD)]
    return subprocess.Popen(  # noqa: S603  # this package's own program
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace"
    )


@define
class _Child:
    """The process of a server, and what it writes.

    Attributes:
        process: The process.
        log: The last lines of its standard error.
        answers: The lines of its standard output, and an empty one at its end.
        readers: The threads that read both.
    """

    process: subprocess.Popen[str]
    log: deque[str] = field(factory=lambda: deque(maxlen=TAIL))
    answers: SimpleQueue[str] = field(factory=SimpleQueue)
    readers: list[Thread] = field(factory=list)

    def started(
        self, settings: ServerSettings, waiting: Callable[[subprocess.Popen[str]], None]
    ) -> LlamaCppServer:
        """Send the settings, and return the server once it listens."""
        self._read(_pipe(self.process.stderr), self.log.append)
        self._read(_pipe(self.process.stdout), self.answers.put, last="")
        api_key = secrets.token_urlsafe(24)
        with suppress(BrokenPipeError):  # it ended already, and its log says why
            stdin = _pipe(self.process.stdin)
            stdin.write(json.dumps({**settings.parameters(), "api_key": api_key}) + "\n")
            stdin.flush()
        answer = self._answer(waiting)
        if not answer:
            self.stop()
            status = self.process.returncode
            how = f"signal {-status}" if status < 0 else f"status {status}"
            text = f"{settings.file}: llama.cpp could not load the model and ended with {how}: see its log"
            todo = "copy the file anew, or upgrade xllamacpp if the model is newer"
            raise ServerStartError(f"{text}; {todo}", self.log)
        return LlamaCppServer(json.loads(answer)["url"], api_key, self.process, self.log)

    def _read(self, pipe: IO[str], take: Callable[[str], None], *, last: str | None = None) -> None:
        """Pass all lines of a pipe to `take` in a thread, and then `last`."""

        def read() -> None:
            for line in pipe:
                take(line.rstrip("\n"))
            if last is not None:
                take(last)

        self.readers.append(Thread(target=read, daemon=True))
        self.readers[-1].start()

    def _answer(self, waiting: Callable[[subprocess.Popen[str]], None]) -> str:
        """Return the first line of the process; empty if it ended without one."""
        while True:
            waiting(self.process)
            with suppress(Empty):
                return self.answers.get(timeout=POLL)

    def stop(self) -> None:
        """End the process, and wait until it has ended; an interrupt meanwhile kills it."""
        with suppress(BrokenPipeError):
            _pipe(self.process.stdin).close()
        try:
            self.process.wait(GRACE)
        except BaseException as error:
            self.process.kill()
            self.process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        for reader in self.readers:
            reader.join()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    """Return a pipe that was asked for."""
    if pipe is None:
        raise RuntimeError("the process was started without this pipe")
    return pipe
