"""A missing extra is named where a package of `tito_io` is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tito_io.extras import install


@pytest.mark.parametrize(
    ("package", "module"), [("tito_io.client", "anyio"), ("tito_io.families", "tokenizers")]
)
def test_a_missing_module_is_named_with_its_extra(package: str, module: str) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; import {package}"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert result.stderr.splitlines()[-1] == f"ModuleNotFoundError: {module} is missing: {install('io')}"
