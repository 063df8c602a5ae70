"""A real browser without a window, asked over its debugging pipe: TITO_BROWSER, or one on the path."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
SECONDS = 60.0
"""How long an answer may take."""
ABOVE = 10
"""Where pipes are put, out of the way of the two places at which a browser looks for them."""


def browser() -> str | None:
    """Return the browser's program."""
    named = os.environ.get("TITO_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@attrs.define
class Page:
    """A page of a browser, and what it complained of."""

    reads: int
    writes: int
    complaints: list[str] = attrs.field(factory=list)
    _asked: int = 0
    _rest: bytes = b""
    _session: dict[str, str] = attrs.field(factory=dict)
    _loaded: int = 0

    def begin(self) -> None:
        """Open a page, and listen to it."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        found = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session["sessionId"] = found["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def go(self, url: str) -> None:
        """Load a page, and return once it is laid out."""
        before = self._loaded
        self.ask("Page.navigate", url=url)
        while self._loaded == before:
            self._heed(self._next())

    def value(self, expression: str) -> Any:
        """Return what an expression amounts to in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def ask(self, method: str, **params: Any) -> Any:
        """Ask the browser; return its answer."""
        self._asked += 1
        said = {"id": self._asked, "method": method, "params": params, **self._session}
        os.write(self.writes, json.dumps(said).encode() + b"\0")
        while (heard := self._next()).get("id") != self._asked:
            self._heed(heard)
        assert "error" not in heard, heard
        return heard["result"]

    def _next(self) -> dict[str, Any]:
        late = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.reads], [], [], max(late - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            part = os.read(self.reads, 1 << 16)
            assert part, "the browser is gone"
            self._rest += part
        said, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(said)
        return found

    def _heed(self, event: dict[str, Any]) -> None:
        """Take note of what happens in the page."""
        method, said = event.get("method", ""), event.get("params", {})
        self._loaded += method == "Page.loadEventFired"
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(said)[:500])


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """Lend a page of a browser that keeps its things in a folder, and ends with the block."""
    program = browser()
    assert program is not None
    (theirs, writes), (reads, answers) = _pipe(), _pipe()
    silent = [(os.POSIX_SPAWN_OPEN, place, os.devnull, os.O_WRONLY, 0) for place in (1, 2)]
    actions = [(os.POSIX_SPAWN_DUP2, theirs, 3), (os.POSIX_SPAWN_DUP2, answers, 4), *silent]
    command = [program, *FLAGS, f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]
    process = os.posix_spawn(program, command, os.environ, file_actions=actions, setsid=True)
    os.close(theirs)
    os.close(answers)
    try:
        found = Page(reads, writes)
        found.begin()
        yield found
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(reads)
        os.close(writes)


def _pipe() -> tuple[int, int]:
    """Return a pipe's two ends."""
    ends = os.pipe()
    found = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE) for end in ends]
    for end in ends:
        os.close(end)
    return found[0], found[1]
