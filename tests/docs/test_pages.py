"""The code of every page runs and prints what the page shows."""

from __future__ import annotations

import os
import warnings
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from .page import blocks, run

ROOT = Path(__file__).parent.parent.parent
INSIDE = os.environ.get("TITO_INSIDE")
"""The framework whose page alone runs: its environment has what this page needs."""
ELSEWHERE = ("train",)
"""Pages whose code takes half an hour: `tests/frameworks/trl/test_train_page.py` runs two updates of it."""
EXTRAS = {"miles": "miles-tokenizers"}
"""The extra that a framework's page installs, where it is not named like the page."""


def of_framework(page: Path) -> bool:
    """Return whether a page is about a framework that can be installed."""
    requirements = ROOT / "tests" / "frameworks" / page.stem / "requirements.txt"
    return page.parent.name == "integrations" and requirements.exists()


def installed(extra: str) -> bool:
    """Return whether this environment has all that an extra of this project asks for."""
    try:
        needs = [Requirement(one) for one in requires("tito-kernel") or ()]
        asked = [one for one in needs if one.marker is not None and one.marker.evaluate({"extra": extra})]
        return bool(asked) and all(one.specifier.contains(version(one.name)) for one in asked)
    except PackageNotFoundError:
        return False


def runs_here(page: Path) -> bool:
    """Return whether a page has code, and what that code needs is installed."""
    if INSIDE:
        wanted = of_framework(page) and page.stem == INSIDE
    else:
        name = EXTRAS.get(page.stem, page.stem.replace("_", "-"))
        wanted = page.stem not in ELSEWHERE and (not of_framework(page) or installed(name))
    found = blocks(page.read_text(encoding="utf-8")) if wanted else []
    return any(block.language in ("python", "console") for block in found)


PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if runs_here(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tito").symlink_to(ROOT)  # a checkout, as a reader has one
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))
    if of_framework(page):  # which warns of its own code, and a reader's page goes on
        warnings.simplefilter("default")
    assert run(page, tmp_path) > 0


def test_an_extra_is_installed_if_all_its_packages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = ["attrs>=25.1", 'pytest>=8; extra == "old"', 'pytest<8; extra == "new"', 'nothing; extra == "no"']
    monkeypatch.setattr(f"{__name__}.requires", lambda _: needs)
    assert [installed(extra) for extra in ("old", "new", "no", "unknown")] == [True, False, False, False]


def test_a_page_that_prints_something_else_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="printed\n1"):
        run(page, tmp_path)
    page.write_text("```console\n$ echo 1\n2\n```\n")
    with pytest.raises(AssertionError, match="echo 1 printed\n1"):
        run(page, tmp_path)


@pytest.mark.skipif(bool(INSIDE), reason="in a framework's environment its own page runs, no tutorial")
def test_there_are_tutorials() -> None:
    assert len([page for page in PAGES if page.parent.name == "tutorials"]) >= 4
