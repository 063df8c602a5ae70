"""The names that `tito_io` itself has: each is what its module defines, and costs nothing before its use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tito_io


@pytest.mark.parametrize("name", tito_io.__all__)
def test_a_short_name_is_what_its_module_defines(name: str) -> None:
    value = getattr(tito_io, name)
    assert value.__module__.startswith("tito_io.")
    assert value is getattr(sys.modules[value.__module__], name)


def test_nothing_is_loaded_before_it_is_used() -> None:
    program = "import sys, tito_io; print([name for name in sys.modules if name.startswith('tito_io.')])"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


def test_another_name_is_an_error_as_anywhere() -> None:
    with pytest.raises(AttributeError, match="'Tokens'"):
        _ = tito_io.Tokens  # type: ignore[attr-defined]
