"""An integration whose framework is missing or too old raises a `FrameworkError` at import."""

from __future__ import annotations

import importlib
import re
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tito_io.integrations import framework
from tito_io.integrations.framework import FRAMEWORKS, FrameworkError

FOLDER = Path(framework.__file__).parent
MADE = re.compile(r'^required\("([\w-]+)", SEAMS\)', re.MULTILINE)
CHECKED = {
    file.stem: match[1]
    for file in sorted(FOLDER.glob("*.py"))
    if (match := MADE.search(file.read_text(encoding="utf-8")))
}
"""The extras by the integrations that need them."""


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Import an integration anew; return its error."""
    module = f"tito_io.integrations.{name}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(FrameworkError) as caught:
        importlib.import_module(module)
    return str(caught.value)


@pytest.mark.parametrize("name", CHECKED)
def test_a_missing_framework_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(framework, "version", nothing)
    assert re.search(r"^[\w-]+>=\S+ is missing: install it with `pip install ", imported(name, monkeypatch))


@pytest.mark.parametrize("name", CHECKED)
def test_an_older_version_is_named_before_the_framework_is_imported(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framework, "version", lambda _: "0.0.1")
    error = imported(name, monkeypatch)
    assert re.search(r"^[\w-]+ is 0\.0\.1: this integration needs [\d.]+ or newer; install", error)


def test_all_integrations_that_import_a_framework_are_checked() -> None:
    assert len(CHECKED) == 12
    assert set(CHECKED.values()) == set(FRAMEWORKS)
