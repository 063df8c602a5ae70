"""A folder with what the commands read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.io.lint.lint_folders import NO_TOOLS
from tests.io.lint.lint_folders import folder as lint_folder
from tito_io.cli.group import tito
from tito_io.embedded import write_family


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two models' folders in it, calls, a script and tools."""
    place = tmp_path_factory.mktemp("place")
    write_family(place / "family")
    lint_folder(place / "plain", NO_TOOLS)  # to lint a template with tools takes ten times as long
    (place / "script.jsonl").write_text('{"user": "Hello."}\n{"user": "More."}\n')
    (place / "tools.json").write_text("[]")
    files = ("--script", str(place / "script.jsonl"), "--calls", str(place / "calls.jsonl"))
    assert CliRunner().invoke(tito, ["rollout", "--turns", "3", *files]).exit_code == 0
    return place
