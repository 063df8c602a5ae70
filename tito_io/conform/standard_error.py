"""The standard error of a program: shown as it comes, and its last line kept."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Thread

import anyio.to_thread

LONGEST = 200
"""The most characters of the last line that are given."""
STDERR = 2


class StandardError:
    """A pipe for the standard error of a program.

    Attributes:
        descriptor: What the program writes to; this process closes it with `follow`.
    """

    def __init__(self) -> None:
        """Open the pipe."""
        self._source, self.descriptor = os.pipe()
        self._end = b""
        self._thread = Thread(target=self._copy, daemon=True)

    def follow(self) -> None:
        """Copy what is written to this process's standard error, until the program has ended."""
        os.close(self.descriptor)
        self._thread.start()

    def _copy(self) -> None:
        with open(self._source, "rb", buffering=0) as pipe:  # noqa: PTH123  # a descriptor
            while part := pipe.read(1 << 16):
                self._end = (self._end + part)[-(1 << 12) :]
                with suppress(OSError):  # a closed stderr does not stop the program
                    os.write(STDERR, part)

    async def last_line(self, seconds: float = 0) -> str:
        """Return the last line so far; waits up to `seconds` for the end."""
        await anyio.to_thread.run_sync(self._thread.join, seconds)
        lines = self._end.decode(errors="replace").split("\n")
        text = next((one.strip() for one in reversed(lines) if one.strip()), "")
        plain = "".join(one if one.isprintable() else "?" for one in text)
        return plain if len(plain) <= LONGEST else f"{plain[:LONGEST]}..."
