"""The table of real programs: every one that the tests know is in it, and what is counted is its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.everything import command, result
from tests.everything.command import main, tried
from tests.everything.result import Result, counted
from tests.everything.subject import Subject, subjects
from tests.faults.fault import ROOT

REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="no"/></testcase>
<testcase name="c"><error/></testcase>
<testcase name="d"><skipped message="needs a real sglang: ask for it with TITO_ENGINES=sglang"/></testcase>
<testcase name="e"><skipped message="needs a GPU"/></testcase>
</testsuite></testsuites>"""
SUBJECT = Subject("engine it", {"TITO_ENGINES": "it"}, ("tests/it",))


def test_every_engine_that_tests_ask_for_is_tried() -> None:
    """Environments and pins are found as files; names of engines stand in the table of subjects."""
    names = {part for one in subjects() for part in one.variables.get("TITO_ENGINES", "").split(",") if part}
    pages = (ROOT / "CONTRIBUTING.md").read_text()
    listed = {name for line in pages.splitlines() if "`TITO_ENGINES=" in line for name in _listed(line)}
    assert listed == names


def _listed(line: str) -> list[str]:
    return line.partition("`TITO_ENGINES=")[2].partition("`")[0].split(",")


def test_pins_and_tests_of_each_subject_are_there() -> None:
    for one in subjects():
        assert all(path.exists() for path in one.pins)
        assert all((ROOT / path).exists() for path in one.paths)


def test_tests_of_other_subjects_are_not_counted(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    assert counted(tmp_path / "report.xml", ["TITO_ENGINES"]) == (1, ("b", "c"), {"needs a GPU": 1})


def test_tests_that_cannot_be_read_are_no_success() -> None:
    found = tried(Subject("engine it", {}, ("tests/no_such_folder",)), 60.0)
    assert found.error == "pytest ended with 4"
    assert tried(SUBJECT, 0.01).error == "ended after 0 s"


def test_a_kept_result_is_not_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = list[str]()

    def tried_so(subject: Subject, _: float) -> Result:
        asked.append(subject.name)
        return Result(
            name=subject.name, versions="", passed=2, failed=(), skipped={}, date="2000-01-01", commit="abc"
        )

    monkeypatch.setattr(command, "subjects", lambda: [SUBJECT])
    monkeypatch.setattr(command, "tried", tried_so)
    monkeypatch.setattr(command, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(result, "cache", lambda: tmp_path)
    for arguments in ([], ["it"], ["engine", "--again"]):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
    assert asked == ["engine it"] * 2
    assert "| engine it |  | 2 | 0 |  | 2000-01-01 | abc |" in (tmp_path / "page.md").read_text()
    assert CliRunner().invoke(main, ["nothing"]).exit_code == 2
