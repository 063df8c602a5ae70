"""The suite runs without plugins that speed it up."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.faults.fault import ROOT


@pytest.mark.whole
def test_tests_are_collected_without_xdist() -> None:
    """Its marks are registered here: an unknown mark is an error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    marked = "tests/io/families/test_bombs.py"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "--collect-only",
            "-q",
            marked,
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
