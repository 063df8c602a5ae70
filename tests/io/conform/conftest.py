"""All vectors, made once."""

from __future__ import annotations

import pytest

from tito_io.conform.vector import Vector, make_vectors


@pytest.fixture(scope="session")
def vectors() -> dict[str, Vector]:
    return {one.id: one for one in make_vectors()}
