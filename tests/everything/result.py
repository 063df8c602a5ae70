"""What came of a subject's tests, kept in a file, and the table of all."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import attrs

from tests.environment import cache


@attrs.frozen(kw_only=True)
class Result:
    """How the tests of a subject went.

    Attributes:
        name: The subject.
        versions: Of its packages.
        passed: How many tests passed.
        failed: The tests that failed.
        skipped: Why tests were skipped, and how many: tests of other subjects are not counted.
        date: When, as YYYY-MM-DD.
        commit: The commit that was tried.
        error: Why nothing ran; empty where tests ran.
    """

    name: str
    versions: str
    passed: int
    failed: tuple[str, ...]
    skipped: dict[str, int]
    date: str
    commit: str
    error: str = ""

    @property
    def row(self) -> str:
        """The row of the table."""
        reasons = "; ".join(f"{count}: {why}" for why, count in sorted(self.skipped.items()))
        failed = f"{len(self.failed)}: {', '.join(self.failed[:3])}" if self.failed else "0"
        counts = (self.error, "", "") if self.error else (str(self.passed), failed, reasons)
        return f"| {' | '.join((self.name, self.versions, *counts, self.date, self.commit))} |"


def folder() -> Path:
    """Return where results are kept."""
    found = cache() / "everything"
    found.mkdir(parents=True, exist_ok=True)
    return found


def read(name: str) -> Result | None:
    """Return the kept result of a subject, None without one."""
    file = _file(name)
    if not file.exists():
        return None
    data = json.loads(file.read_text())
    return Result(**{**data, "failed": tuple(data["failed"])})


def keep(result: Result) -> None:
    """Keep a result."""
    _file(result.name).write_text(json.dumps(attrs.asdict(result)))


def _file(name: str) -> Path:
    return folder() / f"{name.replace(' ', '-').replace(',', '+')}.json"


def counted(report: Path, asked: Iterable[str]) -> tuple[int, tuple[str, ...], dict[str, int]]:
    """Return from a report of pytest how many tests passed, which failed, and why others were skipped.

    Tests that another name in one of the variables `asked` asks for belong to other subjects.
    """
    passed, failed, skipped, names = 0, list[str](), Counter[str](), tuple(f"{one}=" for one in asked)
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  # pytest has written it
        why = case.find("skipped")
        if why is not None:
            text = (why.get("message") or "")[:80].replace("|", "/")
            skipped[text] += not any(name in text for name in names)
        elif case.find("failure") is not None or case.find("error") is not None:
            failed.append(str(case.get("name")))
        else:
            passed += 1
    return passed, tuple(failed), dict(+skipped)


HEAD = """# What was tried with real programs

`python -m tests.everything` runs the tests of each engine, framework, agent and deployment, one after
another, with pinned versions, and writes this page. It continues after a failure, and resumes after a stop.

| what | versions | passed | failed | skipped | date | commit |
|---|---|---|---|---|---|---|
"""


def page(results: Iterable[Result]) -> str:
    """Return the page of the documentation."""
    return HEAD + "\n".join(result.row for result in results) + "\n"
