"""Adapters of the frameworks that can be imported here, by the name of the module in their folders."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.frameworks.conftest import HERE, INSIDE, ORDINARY


def adapters(name: str, value: str) -> list[Any]:
    """Return `value` of the module `name` of each framework here; skip a module of tests without any."""
    folders = [HERE / one for one in ((INSIDE,) if INSIDE else ORDINARY)]
    here = [one.name for one in folders if (one / f"{name}.py").exists()]
    if not here:
        pytest.skip(f"no framework here has {name}.py", allow_module_level=True)
    return [one for folder in here for one in _of(folder, name, value)]


def _of(folder: str, name: str, value: str) -> Iterator[Any]:
    """Yield the adapter of a framework, or several of them."""
    found = getattr(import_module(f"tests.frameworks.{folder}.{name}"), value)
    several = isinstance(found, tuple)
    for one in found if several else (found,):
        yield pytest.param(one, id=f"{folder} {one.__name__}" if several else folder)
