"""Property tests make millions of small values that die at once."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _rare_collections() -> Iterator[None]:
    """Look for cycles less often: it takes a seventh of the time of these tests, which leave almost none."""
    usual = gc.get_threshold()
    gc.set_threshold(10_000, *usual[1:])
    yield
    gc.set_threshold(*usual)
