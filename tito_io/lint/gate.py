"""Decide which findings of a lint fail: those that are neither accepted nor known from an earlier lint."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import attrs

from .report import Finding, LintReport, Look
from .subject import LintError

Case = tuple[str, ...]
"""A refused case: path, template, rendering, turn, roles after it, and reason."""


def _absolute(folder: Path, path: str) -> str:
    """Return a path as absolute; the id of a model on the hub is one like any other."""
    return Path(os.path.normpath(folder.absolute() / path)).as_posix()


@attrs.frozen
class Baseline:
    """The refused cases of an earlier lint.

    A path is the same if it was typed the same way, or if it names the same place, seen from the folder of
    the file: the file does not say where `tito lint` ran.

    Attributes:
        cases: The cases, with paths as they were typed.
        folder: The folder of the file.
    """

    cases: frozenset[Case]
    folder: Path

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the refused cases in what `tito lint --format json` printed; raises `LintError`."""
        return cls(_known(file), file.parent)

    def entry(self, case: Case) -> Case | None:
        """Return the entry for a case of this lint; None if it is new."""
        path, *names = case
        typed = (Path(path).as_posix(), *names)
        return typed if typed in self.cases else self._placed.get((_absolute(Path(), path), *names))

    def gone(self, reports: Sequence[LintReport]) -> int:
        """Return how many entries of the linted paths are no longer refused."""
        placed = {_absolute(Path(), report.path) for report in reports}
        typed = {Path(report.path).as_posix() for report in reports}
        entries = {
            entry for entry in self.cases if entry[0] in typed or _absolute(self.folder, entry[0]) in placed
        }
        found = {self.entry(_case(report, *one)) for report in reports for one in _refused(report)}
        return len(entries - found)

    @cached_property
    def _placed(self) -> dict[Case, Case]:
        return {(_absolute(self.folder, path), *names): (path, *names) for path, *names in self.cases}


@attrs.frozen
class Gate:
    """What an exit status ignores.

    Attributes:
        accepted: Reasons of refusals.
        baseline: Refused cases of an earlier lint; None without one.
    """

    accepted: frozenset[str] = frozenset()
    baseline: Baseline | None = None

    @classmethod
    def of(cls, accepted: Iterable[str], baseline: Path | None) -> Self:
        """Return a gate; raises `LintError` if the file of an earlier lint cannot be read."""
        return cls(frozenset(accepted), None if baseline is None else Baseline.read(baseline))

    def ignored(self, report: LintReport, look: Look, finding: Finding) -> str | None:
        """Return why a refused case does not fail: `accepted` or `known`; None if it fails."""
        if finding.reason in self.accepted:
            return "accepted"
        known = self.baseline is not None and self.baseline.entry(_case(report, look, finding)) is not None
        return "known" if known else None

    def fails(self, report: LintReport) -> bool:
        """Return whether a refused case of a report fails."""
        return any(self.ignored(report, look, one) is None for look, one in _refused(report))

    def summary(self, reports: Sequence[LintReport]) -> str | None:
        """Return how many cases are refused, known and new; None without a baseline."""
        if self.baseline is None:
            return None
        states = Counter(
            self.ignored(report, *one) or "new" for report in reports for one in _refused(report)
        )
        names = ("accepted", "known", "new") if self.accepted else ("known", "new")
        counts = ", ".join(f"{states[name]} {name}" for name in names)
        gone = self.baseline.gone(reports)
        entries = "entry of the baseline is" if gone == 1 else "entries of the baseline are"
        return f"{states.total()} refused: {counts}; {gone} {entries} gone"


def _refused(report: LintReport) -> Iterator[tuple[Look, Finding]]:
    return ((look, one) for look in report.looks for one in look.findings if one.refused)


def _case(report: LintReport, look: Look, finding: Finding) -> Case:
    label = look.rendering.label
    return (report.path, report.template, label, finding.after, finding.following, finding.reason)


def _known(file: Path) -> frozenset[Case]:
    """Return the refused cases in what `tito lint --format json` printed."""
    try:
        reports = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LintError(f"--baseline {file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LintError(f"--baseline {file}: is not valid JSON: {error}") from error
    try:
        return frozenset(case for report in reports for case in _entries(report))
    except (AttributeError, KeyError, TypeError) as error:
        raise LintError(f"--baseline {file}: give what `tito lint --format json` printed") from error


def _entries(report: Mapping[str, Any]) -> Iterator[Case]:
    for case in report["cases"]:
        if case["verdict"] == "refused":
            names = (case["rendering"], case["after"], " ".join(case["shape"]), case["reason"])
            yield (Path(report["path"]).as_posix(), report["template"], *names)
