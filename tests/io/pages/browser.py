"""A real browser without a window, driven over its debugging pipe: TITO_BROWSER, or one on the path."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import struct
import time
import zlib
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SECONDS = 60.0
"""How long an answer may take."""
ABOVE = 10
"""Where pipes are put, out of the way of the two places at which a browser looks for them."""


def browser() -> str | None:
    """Return the browser's program."""
    named = os.environ.get("TITO_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(
    browser() is None, reason="there is no browser: install Chromium, or name one in TITO_BROWSER"
)


@attrs.define
class Page:
    """A page of a browser.

    Attributes:
        problems: What its console shows: errors, warnings and violations of its content security policy.
        requests: The URLs that it requested.
    """

    reads: int
    writes: int
    problems: list[str] = attrs.field(factory=list)
    requests: list[str] = attrs.field(factory=list)
    _calls: int = 0
    _rest: bytes = b""
    _session: dict[str, str] = attrs.field(factory=dict)
    _loaded: int = 0

    def begin(self) -> None:
        """Open a page, and listen to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session["sessionId"] = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def look(self, width: int, *, dark: bool = False) -> None:
        """Set the width of the window, in CSS pixels, and the colour scheme."""
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def go(self, url: str) -> None:
        """Load a page, and return once it is laid out."""
        before = self._loaded
        self.problems.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        while self._loaded == before:
            self._note(self._next())

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self) -> bytes:
        """Return the window as a PNG."""
        return b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the browser; return its answer."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params, **self._session}
        os.write(self.writes, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._calls:
            self._note(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        late = time.monotonic() + SECONDS
        parts = [self._rest]
        while b"\0" not in parts[-1]:
            ready, _, _ = select.select([self.reads], [], [], max(late - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            parts.append(os.read(self.reads, 1 << 16))
            assert parts[-1], "the browser has ended"
        message, _, self._rest = b"".join(parts).partition(b"\0")
        event: dict[str, Any] = json.loads(message)
        return event

    def _note(self, event: dict[str, Any]) -> None:
        """Note what happens in the page."""
        method, params = event.get("method", ""), event.get("params", {})
        self._loaded += method == "Page.loadEventFired"
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.problems.append(json.dumps(params)[:500])


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """Lend a page of a browser that keeps its files in a folder, and end the browser with the block."""
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
        lent = Page(reads, writes)
        lent.begin()
        yield lent
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(reads)
        os.close(writes)


def _pipe() -> tuple[int, int]:
    """Return a pipe's two ends."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


TEXTS = Path(__file__).with_name("texts.js").read_text(encoding="utf-8")
"""The texts that a page shows: their size, where they are, and their contrast with what is behind them."""
SMALLEST = 13
"""Pixels that a text must have."""
CONTRAST = 4.5
"""What WCAG 2 asks of text."""


def check_layout(shown: Page, width: int, *, dark: bool) -> None:
    """Assert that a loaded page fits its window, is legible and of the colour scheme, and is not blank."""
    assert shown.value("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    texts = shown.value(TEXTS)
    assert len(texts) > 10
    assert [text for text in texts if text["size"] < SMALLEST] == []
    assert [text for text in texts if text["contrast"] < CONTRAST] == []
    outside = [text for text in texts if text["left"] < 0 or text["right"] > width + 1]
    assert [text for text in outside if not text["scrolls"]] == []
    ground = shown.value("getComputedStyle(document.body).backgroundColor")
    levels = [int(level) for level in ground.removeprefix("rgb(").removesuffix(")").split(",")]
    assert (max(levels) < 60) if dark else (min(levels) > 200)
    assert_not_blank(shown.screenshot(), width)


def assert_not_blank(png: bytes, width: int) -> None:
    """Assert that a PNG has the width, and that at least a quarter of its rows of pixels are different."""
    assert struct.unpack(">I", png[16:20]) == (width,)
    (height,) = struct.unpack(">I", png[20:24])
    data, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += length + 12
    pixels = zlib.decompress(data)
    stride = len(pixels) // height
    rows = {pixels[start : start + stride] for start in range(0, len(pixels), stride)}
    assert len(rows) > height / 4
