"""Rules for splitting text are those of the models' own `tokenizer.json`.

`splits.json` has them from there; that of SmolLM is `transformers`' for GPT-2 after single digits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers.normalizers import NFC

from tito_io.families.gguf.splits import SPLITTINGS

PUBLISHED: dict[str, Any] = json.loads((Path(__file__).parent / "splits.json").read_text())


def test_every_rule_is_compared() -> None:
    assert SPLITTINGS.keys() == PUBLISHED.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_rule_is_that_of_the_published_file(name: str) -> None:
    rule, published = SPLITTINGS[name], PUBLISHED[name]
    written = [pattern.replace("\r", r"\r").replace("\n", r"\n") for pattern in published["patterns"]]
    assert list(rule.patterns) == written
    assert (rule.gpt2, rule.ignore_merges) == (published["gpt2"], published["ignore_merges"])
    assert rule.nfc == (published["normalizer"] == {"type": "NFC"})
    assert (rule.normalizer is not None) == isinstance(rule.normalizer, NFC)
