"""A newer version of a framework works with one warning, unless what is replaced in it has moved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tito_io.integrations
from tests.frameworks.conftest import INSIDE
from tito_io.integrations import framework
from tito_io.integrations.framework import FrameworkError

FOLDER = Path(framework.__file__).parent
MODULES = [one.stem for one in sorted(FOLDER.glob(f"{INSIDE}*.py")) if "required(" in one.read_text()]
if not INSIDE or not MODULES:
    pytest.skip("no framework here has an integration of its own", allow_module_level=True)

NEWER = "9999.1"
SEAMS = [
    pytest.param(module, seam, id=f"{module} {seam.partition(':')[2]}")
    for module in MODULES
    for seam in import_module(f"tito_io.integrations.{module}").SEAMS
]


@pytest.fixture(autouse=True)
def _newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def newer(package: str) -> str:
        assert version(package)
        return NEWER

    monkeypatch.setattr(framework, "version", newer)
    for module in MODULES:
        known = import_module(f"tito_io.integrations.{module}")
        monkeypatch.setattr(
            tito_io.integrations, module, known
        )  # is put back, too, when it was imported anew
    yield
    framework._warn.cache_clear()


def anew(monkeypatch: pytest.MonkeyPatch, module: str) -> ModuleType:
    monkeypatch.delitem(sys.modules, f"tito_io.integrations.{module}")
    return import_module(f"tito_io.integrations.{module}")


def test_a_newer_version_works_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="this integration is tested up to") as caught:
        assert [anew(monkeypatch, module) for module in MODULES]
    named = [str(one.message) for one in caught if "this integration is tested" in str(one.message)]
    assert len(named) == 1
    assert f" is {NEWER}: " in named[0]


@pytest.mark.parametrize(("module", "seam"), SEAMS)
def test_a_seam_that_moved_is_named(monkeypatch: pytest.MonkeyPatch, module: str, seam: str) -> None:
    place, _, path = seam.partition(":")
    owner: Any = import_module(place)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    monkeypatch.setattr(owner, name, None)
    with pytest.raises(FrameworkError, match=rf" {NEWER} has no {seam} that this integration can use"):
        anew(monkeypatch, module)
