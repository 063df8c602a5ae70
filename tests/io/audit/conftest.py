"""A model folder, and conversations that were sampled with it as no tokenizer spells, or tidily."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.io.audit.audited import KEEPING, family_folder, replace, store
from tito_io.families.family import Family


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = family_folder(tmp_path_factory.mktemp("audit") / "family")
    return replace(made, chat_template__jinja=KEEPING)


@pytest.fixture(scope="package")
def wild(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("audit") / "wild.jsonl", Family.load(folder), wild=True)


@pytest.fixture(scope="package")
def tidy(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("audit") / "tidy.jsonl", Family.load(folder), wild=False)
