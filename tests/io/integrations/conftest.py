"""A tokenizer of `transformers` for the family that needs no download."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

from tito_io.embedded import write_family


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(write_family(tmp_path_factory.mktemp("family") / "model"))
