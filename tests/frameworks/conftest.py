"""Tests inside a framework are collected in that framework's own environment only.

Each folder here is a framework: `requirements.txt` pins its environment, `test_seam.py` says where the
integration goes in, and the other tests use it. What holds in all frameworks of a kind is in `laws`, which
ask a framework by an adapter in its folder. `test_frameworks.py` runs a folder and the laws in its
environment, with TITO_INSIDE set to its name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tito_io.embedded import write_family

HERE = Path(__file__).parent
INSIDE = os.environ.get("TITO_INSIDE", "")

ORDINARY = ("nemo", "slime", "__pycache__")
"""Folders of frameworks that cannot be installed: their tests need no environment of their own."""

collect_ignore = [
    str(folder)
    for folder in HERE.iterdir()
    if folder.is_dir() and folder.name not in (INSIDE, "laws", *ORDINARY)
]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    """Return a tokenizer of `transformers` for the family that needs no download."""
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(write_family(tmp_path / "model"))
