"""The package `fastokens` itself, if it is installed, gives the ids of `tokenizers`.

TITO_FAST_FAMILIES=qwen3,gpt-oss compares these model folders of TITO_FAMILIES, `all` all of them, with the
renders of TITO_GOLDEN too: some four seconds a family.
"""

from __future__ import annotations

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.model_folders import FAMILIES, NAMES
from tito_io.embedded import write_family
from tito_io.families.family import Family
from tito_io.families.fast import fast_tokenizer
from tito_io.families.fast.library import loaded

pytest.importorskip("fastokens", reason="fastokens is not installed (group test)")
CHOSEN = os.environ.get("TITO_FAST_FAMILIES", "").split(",")
GOLDEN = Path(os.environ.get("TITO_GOLDEN", FAMILIES / "golden")) / "renders.json.gz"
SPLIT = "Ünï\u0301 <|im_start|> don't\r\n\r\n  1234567 東京🦊 </think>"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))


def test_a_small_vocabulary_is_certified_whole(tmp_path: Path) -> None:
    family = Family.load(write_family(tmp_path / "family"), fast=True)
    assert family.fast is not None
    found = family.fast.use.certificate
    assert family.fast.use.off is None
    assert found is not None
    assert found.texts > 1_000
    assert family.encode(SPLIT) == Family.load(family.path).encode(SPLIT)


def test_a_vocabulary_of_another_kind_is_certified_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast_tokenizer, "texts", lambda _: iter([("words", SPLIT)]))
    folder = write_family(tmp_path / "family")
    described = json.loads((folder / "tokenizer.json").read_text())
    described["normalizer"] = {"type": "Lowercase"}
    (folder / "tokenizer.json").write_text(json.dumps(described))
    lower = Family.load(folder, fast=True)
    assert lower.encode("ÉLAN") == Family.load(folder).encode("élan")
    described["normalizer"] = {"type": "NFKC"}
    (folder / "tokenizer.json").write_text(json.dumps(described))
    assert loaded(Tokenizer.from_file(str(folder / "tokenizer.json"))) is None
    assert Family.load(folder, fast=True).encode("ﬁ") == Family.load(folder).encode("fi")


def test_threads_share_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_tokenizer, "texts", lambda _: iter([("words", SPLIT)]))
    family = Family.load(write_family(tmp_path / "family"), fast=True, check_every=7)
    texts = [SPLIT[place:] * 20 for place in range(len(SPLIT))]
    right = [family.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(family.encode, texts * 4)] == right * 4
    assert family.fast is not None
    assert family.fast.use.off is None


@pytest.mark.parametrize("name", [one for one in NAMES if {one, "all"} & {*CHOSEN}])
def test_a_real_vocabulary_is_certified_and_its_golden_renders_are_equal(name: str) -> None:
    family = Family.load(FAMILIES / name, fast=True, check_every=1)
    assert family.fast is not None
    assert family.fast.use.off is None
    renders = json.loads(gzip.decompress(GOLDEN.read_bytes()))["renders"]
    texts = [one["text"] for one in renders if one["family"] == name and "text" in one]
    assert texts
    for text in texts:
        family.encode(text)
    assert family.fast.use.differences == 0
