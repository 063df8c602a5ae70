"""The model folders of `TITO_FAMILIES`: real tokenizers and chat templates, for tests that ask for them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FAMILIES = Path(os.environ.get("TITO_FAMILIES") or "/nonexistent")
NAMES = sorted(file.parent.name for file in FAMILIES.glob("*/tokenizer.json"))
needs_families = pytest.mark.skipif(not NAMES, reason="needs model folders: TITO_FAMILIES=DIR")
