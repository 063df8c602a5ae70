"""Decide which findings of a lint fail: those that are neither accepted nor known from an earlier lint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import attrs

from .report import Finding, LintReport, Look
from .subject import LintError

Case = tuple[str, ...]
"""A refused case: path, template, rendering, turn, roles after it, and reason."""


def _case(path: str, *names: str) -> Case:
    return (Path(path).as_posix(), *names)


@attrs.frozen
class Gate:
    """What an exit status ignores.

    Attributes:
        accepted: Reasons of refusals.
        known: Refused cases of an earlier lint; None without a baseline.
    """

    accepted: frozenset[str] = frozenset()
    known: frozenset[Case] | None = None

    @classmethod
    def of(cls, accepted: Iterable[str], baseline: Path | None) -> Self:
        """Return a gate; raises `LintError` if the file of an earlier lint cannot be read."""
        return cls(frozenset(accepted), None if baseline is None else _known(baseline))

    def ignored(self, report: LintReport, look: Look, finding: Finding) -> str | None:
        """Return why a refused case does not fail: `accepted` or `known`; None if it fails."""
        if finding.reason in self.accepted:
            return "accepted"
        label = look.rendering.label
        case = _case(report.path, report.template, label, finding.after, finding.following, finding.reason)
        return "known" if self.known is not None and case in self.known else None

    def fails(self, report: LintReport) -> bool:
        """Return whether a refused case of a report fails."""
        return any(
            one.refused and self.ignored(report, look, one) is None
            for look in report.looks
            for one in look.findings
        )


def _known(file: Path) -> frozenset[Case]:
    """Return the refused cases in what `tito lint --format json` printed."""
    try:
        reports = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LintError(f"--baseline {file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise LintError(f"--baseline {file}: is not valid JSON: {error}") from error
    try:
        return frozenset(case for report in reports for case in _refused(report))
    except (AttributeError, KeyError, TypeError) as error:
        raise LintError(f"--baseline {file}: give what `tito lint --format json` printed") from error


def _refused(report: Mapping[str, Any]) -> Iterable[Case]:
    for case in report["cases"]:
        if case["verdict"] == "refused":
            names = (case["rendering"], case["after"], " ".join(case["shape"]), case["reason"])
            yield _case(report["path"], report["template"], *names)
