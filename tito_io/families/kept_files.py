"""Keep results that tito can compute again in files of the user's cache folder."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Self

from attrs import frozen

from tito_io.atomic_write import write_atomically

FORM = 1
"""The version of the files' form."""
LOG = logging.getLogger("tito.families")
_LARGEST = 1 << 26


@frozen
class KeptFiles:
    """Files of one kind, one per key. What cannot be read is missing; what cannot be written is not kept.

    A file is written under another name and renamed, so that any number of processes may use one folder. It
    begins with its kind, its key and a checksum of the rest.

    Attributes:
        folder: The folder, made when it is needed; None to keep nothing.
        kind: What a file holds, in one word.
    """

    folder: Path | None
    kind: str

    @classmethod
    def default(cls, kind: str) -> Self:
        """Return the folder of a kind below `TITO_CACHE`, or else below the user's cache folder."""
        root = cache_folder(os.environ, sys.platform)
        return cls(None if root is None else root / f"{kind}s", kind)

    def find(self, key: str) -> bytes | None:
        """Return what the file of a key holds; None if there is no file, or not a whole one."""
        if self.folder is None:
            return None
        file = self.folder / f"{key}.json"
        try:
            content = file.read_bytes() if file.is_file() and file.stat().st_size <= _LARGEST else b""
        except OSError:
            return None
        head, _, body = content.partition(b"\n")
        return body if head == self.head(key, body) else None

    def keep(self, key: str, body: bytes) -> None:
        """Write the file of a key; log once per folder where that is impossible."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / f"{key}.json"
            write_atomically(file, self.head(key, body) + b"\n" + body, follow=False)
        except OSError as error:
            _log_once(self.kind, self.folder, error.strerror or str(error))

    def head(self, key: str, body: bytes) -> bytes:
        """Return the first line of a file."""
        return f"tito {self.kind} {FORM} {key} {sha256(body).hexdigest()}".encode()


def cache_folder(environment: Mapping[str, str], platform: str) -> Path | None:
    """Return the folder for what tito can find out again; None if the user has no home.

    >>> cache_folder({"TITO_CACHE": "/scratch/tito"}, "linux").as_posix()
    '/scratch/tito'
    >>> cache_folder({"XDG_CACHE_HOME": "/home/ann/.cache"}, "linux").as_posix()
    '/home/ann/.cache/tito'
    """
    chosen = environment.get("TITO_CACHE")
    if chosen:
        return Path(chosen)
    named = environment.get("LOCALAPPDATA" if platform == "win32" else "XDG_CACHE_HOME", "")
    if platform != "darwin" and Path(named).is_absolute():  # the standard ignores relative paths
        return Path(named) / "tito"
    try:
        home = Path.home()
    except RuntimeError:  # neither a variable nor the user database knows one
        return None
    return home / {"darwin": "Library/Caches", "win32": "AppData/Local"}.get(platform, ".cache") / "tito"


@cache
def _log_once(kind: str, folder: Path, why: str) -> None:
    LOG.warning(
        "%ss: cannot be kept in %s: %s; set TITO_CACHE to a folder that can be written", kind, folder, why
    )
