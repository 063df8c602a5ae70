"""The benchmark of an installation measures an import in a new process."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.install import NOTHING, imported


def test_an_import_is_measured() -> None:
    python = Path(sys.executable)
    nothing, more = imported(python, NOTHING, 1), imported(python, "decimal, asyncio, tito_core", 1)
    assert 0 <= nothing.seconds < more.seconds
    assert 1e6 < nothing.memory < more.memory < 1e9
