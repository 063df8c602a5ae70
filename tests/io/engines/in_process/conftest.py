"""What the tests of engines in this process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .fakes import close_loops, fake_packages


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the engines' packages be imported, and leave no event loop open."""
    fake_packages(monkeypatch)
    yield
    close_loops()
