"""Make one real object of an engine's Python package, with the tiny random model of the other live tests.

`tests/engines/test_in_process.py` runs these tests in the engine's environment. TITO_INSIDE names the engine,
and TITO_TINY the model's folder.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tito_io.families import Family

from .objects import OBJECTS, Subject
from .reference import Reference

INSIDE = os.environ.get("TITO_INSIDE", "")
collect_ignore_glob = [f"test_{name.replace('-', '_')}*.py" for name in OBJECTS if name != INSIDE]
"""The traps of other engines."""


@pytest.fixture(scope="session")
def folder() -> Path:
    """Return the model's folder."""
    return Path(os.environ["TITO_TINY"])


@pytest.fixture(scope="session")
def family(folder: Path) -> Family:
    """Load the model's folder."""
    return Family.load(folder)


@pytest.fixture(scope="session")
def reference(folder: Path) -> Reference:
    """Load the model in transformers, which computes exact log-probabilities."""
    return Reference.load(folder)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run on one event loop; where the other matters a test says so."""
    return "asyncio"


@pytest.fixture(scope="session")
def made(folder: Path) -> Iterator[Any]:
    """Make the engine's object, once a run."""
    subject = OBJECTS[INSIDE]
    made = subject.make(folder)
    yield made
    subject.end(made)


@pytest.fixture(scope="session")
def subject() -> Subject:
    """Return what differs between the engines."""
    return OBJECTS[INSIDE]


@pytest.fixture(scope="session", autouse=INSIDE == "vllm-async")
async def one_loop(anyio_backend: str) -> AsyncIterator[None]:
    """Keep one event loop for all tests: an `AsyncLLM` answers in no other. Other objects get one a test."""
    del anyio_backend
    yield  # noqa: PT022  # the loop lasts until here


@pytest.fixture(scope="session")
def engine(made: Any, subject: Subject, family: Family) -> Any:
    """Return the engine of the object."""
    return subject.engine(made, family)
