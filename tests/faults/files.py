"""Faults of the files that the project writes, and of those that it reads."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import Fault

WRITTEN = partial(Fault, package="tito_io", file="atomic_write.py", suites=("tests/io/test_atomic_write.py",))

READ = partial(
    Fault, package="tito_io", file="samples/lines.py", suites=("tests/io/samples/test_bombs.py", "-k", "bomb")
)

FAULTS = (
    WRITTEN(
        "two processes write one temporary file",
        right='target.with_name(f".tito-{secrets.token_hex(8)}.part")',
        wrong='target.with_name(".tito-1.part")',
    ),
    WRITTEN(
        "a link in the place of the temporary file is followed",
        right='os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)',
        wrong="os.O_WRONLY | os.O_CREAT",
    ),
    WRITTEN(
        "SIGTERM leaves the temporary file",
        right="        signal.signal(one, _exit)\n",
        wrong="        pass\n",
    ),
    WRITTEN(
        "a link is replaced by a file",
        right="Path(os.path.realpath(path)) if follow else path",
        wrong="path",
    ),
    WRITTEN(
        "a file that others could not read is readable",
        right="            _copy_mode(old, file)\n",
        wrong="",
    ),
    WRITTEN(
        "a full disk looks like a full standard output",
        right="        with named_errors(self._path):\n            return super().write(data)",
        wrong="        return super().write(data)",
    ),
    WRITTEN(
        "two rollouts write their calls to one file",
        right="                _lock(file)\n",
        wrong="",
    ),
    READ(
        "a small file holds any number of lines",
        right="if number > LINES + size // BYTES_A_LINE:",
        wrong="if False:",
    ),
    READ(
        "a small file holds a line of any number of values",
        right='sum(map(raw.count, (b",", b":", b"[", b"{"))) > VALUES + size:',
        wrong="False:",
    ),
    READ(
        "a byte of gzip stands for any number of bytes",
        right='{".gz": 256,',
        wrong='{".gz": 2048,',
    ),
)
