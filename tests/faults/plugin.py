"""A pytest plugin: write the tests that fail to the file that `TITO_FAILED` names, one a line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write a test that failed."""
    if report.failed:
        with Path(os.environ["TITO_FAILED"]).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")
