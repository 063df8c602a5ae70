"""The benchmark of first turns gives each program text of its own, and a ratio."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import first_turn
from tests.io.families.fast.package import installed
from tito_io.embedded import write_family
from tito_io.families.fast import fast_tokenizer


def test_a_case_has_every_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TITO_FAMILIES", str(write_family(tmp_path / "small").parent))
    monkeypatch.setattr(fast_tokenizer, "texts", lambda _: iter([("words", "hello")]))
    monkeypatch.setattr(first_turn, "TOKENS", 2_000)
    monkeypatch.setattr(first_turn, "RUNS", 1)
    with installed(tmp_path, monkeypatch) as fast:
        done = CliRunner().invoke(first_turn.main, ["--family", "small", "--json"])
        assert len({*fast.encoded}) > 2 * len(first_turn.MESSAGES)
    cases = json.loads(done.stdout)
    assert [one["messages"] for one in cases] == [*first_turn.MESSAGES]
    names = [*("tokenizers", "a first turn", "render"), *("fastokens", "a first turn, fast")]
    assert all(list(one["seconds"]) == names for one in cases)
    assert all(one["ratio"] == one["seconds"][names[4]] / one["seconds"][names[3]] for one in cases)


def test_no_text_is_taken_twice(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.py", "b.py")]
    for file, text in zip(files, ("0123<|channel|>45", "6789"), strict=True):
        file.write_text(text)
    source = first_turn.Source(iter(files))
    assert [source.take(3) for _ in range(3)] == ["012", "345", "678"]
