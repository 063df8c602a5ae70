"""The benchmark of `tito lint` times templates, and compares their reports with earlier ones."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from benchmarks import lint as benchmark
from benchmarks.templates.corpus import Entry
from tests.test_benchmarks_templates import CHATML

ENTRIES = [Entry("chatml", CHATML), Entry("broken", "{% for %}"), Entry("left out", CHATML + " ")]


@pytest.fixture(scope="module")
def found() -> list[benchmark.Linted]:
    return [benchmark.linted(entry) for entry in ENTRIES[:2]]


def test_a_template_is_linted_with_the_stops_that_it_shows(found: list[benchmark.Linted]) -> None:
    report = found[0].report
    assert report["error"] is None
    assert "<|im_end|>" in [stop["text"] for stop in report["stops"]]
    assert {case["verdict"] for case in report["cases"]} == {"exact"}
    assert found[0].seconds > 0
    assert "does not compile" in found[1].report["error"] or "line 1" in found[1].report["error"]


def test_reports_are_kept_and_compared(
    tmp_path: Path, found: list[benchmark.Linted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "bundled", lambda: ENTRIES)
    monkeypatch.setattr(benchmark, "lint_all", lambda entries, _: found[: len(entries)])
    file = tmp_path / "reports.json"
    kept = CliRunner().invoke(benchmark.main, ["--every", "2", "--reports", str(file)])
    assert "2 templates, 1 of them not linted: processor time of a template: median" in kept.output
    same = CliRunner().invoke(benchmark.main, ["--every", "2", "--same-as", str(file)])
    assert (same.exit_code, same.output.splitlines()[-1]) == (0, "2 compared, 0 differ")
    other = [attrs.evolve(found[0], report={**found[0].report, "advice": ["other"]}), found[1]]
    monkeypatch.setattr(benchmark, "lint_all", lambda *_: other)
    changed = CliRunner().invoke(benchmark.main, ["--every", "2", "--same-as", str(file)])
    assert (changed.exit_code, changed.output.splitlines()[-1]) == (1, "  chatml")
    assert list(json.loads(file.read_text())) == ["chatml", "broken"]


def test_a_name_that_no_template_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "bundled", lambda: ENTRIES)
    result = CliRunner().invoke(benchmark.main, ["--only", "nothing"])
    assert result.exit_code == 1
