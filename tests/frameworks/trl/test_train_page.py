"""The tutorial that trains a real model: its own code, with two updates in place of its many."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.page import blocks, run
from tests.environment import Say
from tests.real_models import real_model

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "tutorials" / "train.md"
LENGTH = re.compile(r"^SEED, UPDATES = (\d+), (\d+)$", re.MULTILINE)
MOST = 40
"""How many lines a reader writes until the model is trained."""


def shortened(page: str) -> str:
    """Return a page with two updates, whose outputs are not compared: they are those of the whole run."""
    page = LENGTH.sub(r"SEED, UPDATES = \1, 2", page)
    page = re.sub(r"^```text\n.*?^```$", "```text\n...\n```", page, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^(\$ [^\n]*[^&\n]\n).*?^```$", r"\1...\n```", page, flags=re.DOTALL | re.MULTILINE)


def commands(folder: Path) -> Path:
    """Write the command `tito`, which no package installs in this environment."""
    folder.mkdir()
    lines = ("#!/bin/sh", f'exec {shlex.quote(sys.executable)} -m tito_io "$@"\n')
    (folder / "tito").write_text("\n".join(lines))
    (folder / "tito").chmod(0o755)
    return folder


def test_the_page_trains_a_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Say) -> None:
    package = real_model("smollm2", say).parent.parent
    paths = [str(commands(tmp_path / "bin")), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(paths))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(package))))
    monkeypatch.syspath_prepend(package)
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "page.md").write_text(shortened(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    assert run(tmp_path / "page.md", tmp_path) > 0
    rewards = [row["reward"] for row in csv.DictReader((tmp_path / "rewards-1.csv").open())]
    assert [0 <= float(value) <= 1 for value in rewards] == [True, True]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * 16
    assert "<html" in (tmp_path / "session.html").read_text()


def test_a_reader_writes_few_lines_until_the_model_is_trained() -> None:
    code = [block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "python"]
    (last,) = (place for place, text in enumerate(code) if "trainer.train()" in text)
    lines = [line for text in code[: last + 1] for line in text.splitlines() if line.strip()]
    assert len(lines) <= MOST
