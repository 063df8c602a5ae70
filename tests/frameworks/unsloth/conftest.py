"""Unsloth is imported before TRL, as it demands. It warns that versions are others than it allows."""

from __future__ import annotations

import os

import pytest
import unsloth  # noqa: F401  # it changes transformers and TRL when it is imported

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore::FutureWarning")
