"""Which versions a release is tried with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.release import environments
from tests.release.environments import EXTRAS, NEWEST, OLDEST, Environment


@pytest.mark.parametrize("resolution", [OLDEST, NEWEST])
def test_the_projects_own_table_is_resolved(resolution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the dependencies of a wheel uv would take the newest versions, whatever the resolution is."""
    asked: list[tuple[str, ...]] = []

    def uv(*arguments: str) -> str:
        asked.append(arguments)
        return "anyio==4.9.0\nidna==3.10\nredis==6.0.0\nhuggingface-hub==0.36.2\n"

    monkeypatch.setattr(environments, "uv", uv)
    assert Environment(Path("unused"), resolution).versions() == ["anyio==4.9.0", "redis==6.0.0"]
    (arguments,), extras = asked, [word for extra in EXTRAS for word in ("--extra", extra)]
    assert list(arguments[-len(extras) - 3 :]) == ["--resolution", resolution, "pyproject.toml", *extras]
