"""The public names: all there, some of them imported when they are first asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import tito_core

MODULES = sorted(path.stem for path in Path(tito_core.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", tito_core.__all__)
def test_a_public_name_is_there_and_is_listed(name: str) -> None:
    assert getattr(tito_core, name) is not None
    assert name in dir(tito_core)


def test_no_module_hides_a_public_name() -> None:
    for module in MODULES:
        import_module(f"tito_core.{module}")
    hidden = [name for name in tito_core.__all__ if isinstance(getattr(tito_core, name), ModuleType)]
    assert hidden == []


def test_an_unknown_public_name_raises_an_error() -> None:
    with pytest.raises(AttributeError, match="'tito_core' has no attribute 'stich'"):
        getattr(tito_core, "stich")  # noqa: B009  # type checkers know that it is not there


def test_stitching_needs_no_more_than_it_says() -> None:
    """What looks at finished rollouts, and the edge, would double the time of an import."""
    code = "import sys, tito_core; sys.exit(any(f'tito_core.{n}' in sys.modules for n in sys.argv[1:]))"
    later = ["audited", "sample_rows", "forest", "survey", "certify", "edge"]
    assert subprocess.run([sys.executable, "-c", code, *later], check=False).returncode == 0
