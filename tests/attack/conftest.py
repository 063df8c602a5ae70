"""Run the attacks that stand elsewhere where this folder is named on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.elsewhere import ELSEWHERE

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Add those tests; a run of all tests has them anyway."""
    if HERE in [Path(one).resolve() for one in config.args]:
        config.args += [f"{ROOT / test}" for tests in ELSEWHERE.values() for test in tests]
