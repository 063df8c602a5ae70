"""Decide which findings of a lint fail: those that are neither accepted nor known from an earlier lint.

Refused cases fail. Cases whose history a fresh render rewrites fail only on demand, and so do refused images.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import attrs

from .image_report import REFUSED
from .report import Finding, LintReport, Look, to_json
from .subject import LintError

REWRITTEN = "HISTORY_REWRITTEN"
"""The rule of a case in which a fresh render changes ids that are in use."""
IMAGES = "IMAGES_REFUSED"
"""The rule of an image that is refused, or that goes by messages wherever it stands."""
FAIL_ON = {REWRITTEN: "a fresh render changes ids in use", IMAGES: "an image goes by messages"}
"""Rules that fail only on demand, in words."""
Case = tuple[str, ...]
"""A case that fails: path, template, rendering, turn, roles after it, and the reason or rule."""


def _absolute(folder: Path, path: str) -> str:
    """Return a path as absolute; the id of a model on the hub is one like any other."""
    return Path(os.path.normpath(folder.absolute() / path)).as_posix()


@attrs.frozen
class Baseline:
    """The cases of an earlier lint that fail: refused ones, and on demand those with a rewritten history.

    A path is the same if it was typed the same way, or if it names the same place, seen from the folder of
    the file: the file does not say where `tito lint` ran.

    Attributes:
        cases: The cases, with paths as they were typed.
        folder: The folder of the file.
    """

    cases: frozenset[Case]
    folder: Path

    @classmethod
    def read(cls, file: Path, fail_on: Collection[str] = ()) -> Self:
        """Return the cases in what `tito lint --format json` printed; raises `LintError`."""
        try:
            reports = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise LintError(f"--baseline {file}: cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise LintError(f"--baseline {file}: is not valid JSON: {error}") from error
        try:
            cases = frozenset(case for report in reports for case in _entries(report, fail_on))
        except (AttributeError, KeyError, TypeError) as error:
            raise LintError(f"--baseline {file}: give what `tito lint --format json` printed") from error
        return cls(cases, file.parent)

    def entry(self, case: Case) -> Case | None:
        """Return the entry for a case of this lint; None if it is new."""
        path, *names = case
        typed = (Path(path).as_posix(), *names)
        return typed if typed in self.cases else self._placed.get((_absolute(Path(), path), *names))

    def gone(self, reports: Sequence[LintReport], failing: Collection[Case]) -> int:
        """Return how many entries of the linted paths are not among the cases that fail now."""
        placed = {_absolute(Path(), report.path) for report in reports}
        typed = {Path(report.path).as_posix() for report in reports}
        entries = {
            entry for entry in self.cases if entry[0] in typed or _absolute(self.folder, entry[0]) in placed
        }
        return len(entries - set(map(self.entry, failing)))

    @cached_property
    def _placed(self) -> dict[Case, Case]:
        return {(_absolute(self.folder, path), *names): (path, *names) for path, *names in self.cases}


@attrs.frozen
class Gate:
    """The findings that an exit status ignores.

    Attributes:
        accepted: Reasons of refusals.
        baseline: Cases of an earlier lint; None without one.
        fail_on: Names of `FAIL_ON` that fail, beside refusals.
    """

    accepted: frozenset[str] = frozenset()
    baseline: Baseline | None = None
    fail_on: frozenset[str] = frozenset()

    @classmethod
    def of(cls, accepted: Iterable[str], baseline: Path | None, fail_on: Iterable[str] = ()) -> Self:
        """Return a gate; raises `LintError` if the file of an earlier lint cannot be read."""
        rules = frozenset(fail_on)
        return cls(frozenset(accepted), None if baseline is None else Baseline.read(baseline, rules), rules)

    def ignored(self, report: LintReport, look: Look, finding: Finding, rule: str) -> str | None:
        """Return why a case that may fail does not, `accepted` or `known`; None if it fails."""
        return self._ignored(_case(report, look, finding, rule))

    def fails(self, report: LintReport) -> bool:
        """Return whether a case of a report fails."""
        return any(self._ignored(case) is None for case in self._failing(report))

    def summary(self, reports: Sequence[LintReport]) -> str | None:
        """Return how many cases may fail, known and new ones; None without a baseline."""
        if self.baseline is None:
            return None
        failing = [case for report in reports for case in self._failing(report)]
        states = Counter(self._ignored(case) or "new" for case in failing)
        names = ("accepted", "known", "new") if self.accepted else ("known", "new")
        counts = ", ".join(f"{states[name]} {name}" for name in names)
        gone = self.baseline.gone(reports, failing)
        entries = "entry of the baseline is" if gone == 1 else "entries of the baseline are"
        what = "refused or rewritten" if REWRITTEN in self.fail_on else "refused"
        return f"{states.total()} {what}: {counts}; {gone} {entries} gone"

    def _ignored(self, case: Case) -> str | None:
        if case[-1] in self.accepted:
            return "accepted"
        known = self.baseline is not None and self.baseline.entry(case) is not None
        return "known" if known else None

    def _failing(self, report: LintReport) -> Iterator[Case]:
        """Return the cases that fail unless they are ignored."""
        return _entries(to_json(report), self.fail_on)


def _image_cases(path: str, template: str, media: Mapping[str, Any]) -> Iterator[Case]:
    """Yield where images go by messages, in a template that writes them."""
    if media["written"] and media["problem"]:
        yield (path, template, "images", "everywhere", "", IMAGES)
    for one in media["cases"]:
        if one["verdict"] == REFUSED:
            yield (path, template, "images", one["place"], "", IMAGES)


def _case(report: LintReport, look: Look, finding: Finding, rule: str) -> Case:
    return (report.path, report.template, look.rendering.label, finding.after, finding.following, rule)


def _entries(report: Mapping[str, Any], fail_on: Collection[str]) -> Iterator[Case]:
    for case in report["cases"]:
        names = (case["rendering"], case["after"], " ".join(case["shape"]))
        place = (Path(report["path"]).as_posix(), report["template"], *names)
        if case["verdict"] == "refused":
            yield (*place, case["reason"])
        if case["history_rewritten"] and REWRITTEN in fail_on:
            yield (*place, REWRITTEN)
    media = report.get("images")
    if media is not None and IMAGES in fail_on:
        yield from _image_cases(Path(report["path"]).as_posix(), report["template"], media)
