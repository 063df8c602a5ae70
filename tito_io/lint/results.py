"""The results of a lint as programs read them: annotations of GitHub, SARIF 2.1.0 and JUnit's XML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

import attrs

from tito_core import Reason, __version__

from .advice import WARNINGS, rewritten, several, situation, warnings
from .gate import REWRITTEN, Gate
from .report import Finding, LintReport, Look
from .verdict import CONTRADICTED

ERROR = "LINT_ERROR"
RULES = {
    ERROR: "The template could not be linted",
    REWRITTEN: "A fresh render changes ids that are in use, so that prompts sent as messages drift",
    Reason.TEMPLATE_REFUSED.name: "The template rejects the conversation",
    Reason.SWALLOWED.name: "The template drops a new message",
    Reason.ODD_STOP.name: "The sampled stop is not the template's close of a turn",
    Reason.CLOSE_MISMATCH.name: "The template closes turns differently from how they were sampled",
    Reason.UNPROVEN_TAIL.name: "What the template writes after a turn could not be proven",
    **WARNINGS,
    CONTRADICTED: "An example conversation has another tail than the certificate says",
}
"""What can be found, in words. The names of reasons are those of `tito_core.Reason`, and ours."""
GITHUB = {"note": "notice", "warning": "warning", "error": "error"}
"""The annotation for each level of SARIF."""
_PLACE = re.compile(r"(.+?), line (\d+): ")
_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


@attrs.frozen(kw_only=True)
class Result:
    """Cases of one template with the same outcome, in the same rendering.

    Attributes:
        rule: A name of `RULES`.
        text: What was found.
        file: The template's file, relative to the working directory where it is in it.
        line: A line of the file.
        ignored: Why it does not fail although such cases do: `accepted` or `known`.
        cases: The cases in words.
        fails: Whether it fails although it is not a refusal.
    """

    rule: str
    text: str
    file: str
    line: int = 1
    ignored: str | None = None
    cases: tuple[str, ...] = ()
    fails: bool = False

    @property
    def level(self) -> str:
        """How serious it is, in the words of SARIF."""
        if self.fails:
            return "error"
        return "note" if self.rule == REWRITTEN else "warning" if self.rule in WARNINGS else "error"


def results(reports: Iterable[LintReport], gate: Gate) -> Iterator[Result]:
    """Yield what was found: errors, warnings, then for each rendering refusals and rewritten histories."""
    for report in reports:
        if report.error is not None:
            yield _error(report, report.error)
        else:
            for one in warnings(report):
                yield Result(rule=one.rule, text=f"{report.template}: {one.text}", file=_file(report))
        for look in report.looks:
            yield from _refusals(report, look, gate)
            yield from _drifts(report, look, gate)


def _error(report: LintReport, error: str) -> Result:
    """Return an error at the place that it names."""
    named = _PLACE.match(error)
    if named is None:
        return Result(rule=ERROR, text=error, file=_file(report))
    return Result(rule=ERROR, text=error, file=_relative(Path(named[1])), line=int(named[2]))


def _refusals(report: LintReport, look: Look, gate: Gate) -> Iterator[Result]:
    groups: dict[tuple[str, str | None], list[Finding]] = {}
    for one in look.findings:
        if one.refused:
            groups.setdefault((one.reason, gate.ignored(report, look, one, one.reason)), []).append(one)
    for (reason, ignored), findings in groups.items():
        detail = f": {findings[0].detail}" if findings[0].detail else ""
        text = f"{report.template}, {look.rendering.label}: {several(findings)}: refused{detail}"
        # The line of the template that refuses the first case for which one is named; else the first.
        places = filter(None, (_PLACE.match(one.detail) for one in findings))
        line = next((int(one[2]) for one in places if _relative(Path(one[1])) == _file(report)), 1)
        yield attrs.evolve(_result(reason, text, report, findings), line=line, ignored=ignored)


def _drifts(report: LintReport, look: Look, gate: Gate) -> Iterator[Result]:
    fails = REWRITTEN in gate.fail_on
    groups: dict[tuple[str, str | None], list[Finding]] = {}
    for one in look.findings:
        if one.divergence is not None:
            ignored = gate.ignored(report, look, one, REWRITTEN) if fails else None
            groups.setdefault((rewritten(one.divergence), ignored), []).append(one)
    for (change, ignored), findings in groups.items():
        text = f"{report.template}, {look.rendering.label}: {several(findings)}: a fresh render {change}"
        yield attrs.evolve(_result(REWRITTEN, text, report, findings), ignored=ignored, fails=fails)


def _result(rule: str, text: str, report: LintReport, findings: Sequence[Finding]) -> Result:
    return Result(rule=rule, text=text, file=_file(report), cases=tuple(map(situation, findings)))


def _file(report: LintReport) -> str:
    """Return the file that holds a template, as tools for repositories name it."""
    return _relative(Path((report.source or report.path).partition("#")[0]))


def _relative(place: Path) -> str:
    here = Path.cwd()
    return place.relative_to(here).as_posix() if place.is_relative_to(here) else place.as_posix()


def github(found: Iterable[Result]) -> str:
    """Return workflow commands that GitHub shows beside files; what is accepted or known is left out.

    https://docs.github.com/actions/reference/workflow-commands-for-github-actions

    >>> print(github([Result(rule="ODD_STOP", text="a, b: 50%", file="a,b.jinja")]), end="")
    ::error file=a%2Cb.jinja,line=1,title=tito lint ODD_STOP::a, b: 50%25
    """
    return "".join(
        f"::{GITHUB[one.level]} file={_escaped(one.file, ':,')},line={one.line},"
        f"title=tito lint {one.rule}::{_escaped(one.text)}\n"
        for one in found
        if one.ignored is None
    )


def _escaped(text: str, further: str = "") -> str:
    for sign in "%\r\n" + further:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def sarif(found: Iterable[Result]) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log, as code scanning reads it."""
    rules = [{"id": name, "shortDescription": {"text": f"{text}."}} for name, text in RULES.items()]
    driver = {"name": "tito lint", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_sarif_result(one) for one in found]}],
    }


def _sarif_result(one: Result) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": _uri(one.file)}, "region": {"startLine": one.line}}
    result = {
        "ruleId": one.rule,
        "ruleIndex": list(RULES).index(one.rule),
        "level": one.level,
        "message": {"text": one.text},
        "locations": [{"physicalLocation": place}],
        # GitHub tells by it which results of two uploads are the same; all of a template are in one line.
        "partialFingerprints": {
            "primaryLocationLineHash": sha256(f"{one.rule} {one.text}".encode()).hexdigest()
        },
        "properties": {"cases": list(one.cases)},
    }
    if one.ignored is not None:
        result["suppressions"] = [{"kind": "external", "justification": one.ignored}]
    return result


def _uri(file: str) -> str:
    """Return a file as a URI; one outside of the working directory is absolute.

    >>> _uri("a folder/b.jinja"), _uri("/tmp/b.jinja")
    ('a%20folder/b.jinja', 'file:///tmp/b.jinja')
    """
    return Path(file).as_uri() if Path(file).is_absolute() else quote(file)


def junit(reports: Sequence[LintReport], gate: Gate) -> str:
    """Return JUnit's XML: a suite for each template and rendering, with a test case for each case.

    It is valid by the schema of Jenkins' xUnit plugin (junit-10.xsd), the strictest reader that is in use.
    """
    root = ET.Element("testsuites", name="tito lint")
    for report in reports:
        if report.error is not None:
            suite = _suite(root, report, "")
            ET.SubElement(_test(suite, "lint"), "error", message=_printable(report.error))
        else:
            _add_warnings(root, report)
        for look in report.looks:
            suite = _suite(root, report, look.rendering.label)
            for finding in look.findings:
                name = situation(finding)
                if finding.kind.calls:  # such turns differ in their content, too
                    name += f", {finding.kind.content} content"
                _add_outcome(_test(suite, name), report, look, finding, gate)
    for suite in root:
        _count(suite)
    return ET.tostring(root, encoding="unicode", xml_declaration=True)


def _add_warnings(root: ET.Element, report: LintReport) -> None:
    """Add a passed test case with a text for each warning: JUnit has no warnings."""
    warned = list(warnings(report))
    suite = _suite(root, report, "") if warned else root
    for one in warned:
        ET.SubElement(_test(suite, one.rule), "system-out").text = _printable(f"warning: {one.text}")


def _suite(root: ET.Element, report: LintReport, label: str) -> ET.Element:
    name = " ".join(part for part in (report.path, report.template, label) if part)
    return ET.SubElement(root, "testsuite", name=_printable(name), file=_printable(_file(report)))


def _test(suite: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", name=_printable(name), classname=suite.get("name", ""), time="0")


def _add_outcome(test: ET.Element, report: LintReport, look: Look, finding: Finding, gate: Gate) -> None:
    change = None if finding.divergence is None else f"a fresh render {rewritten(finding.divergence)}"
    if finding.refused:
        rule, text = finding.reason, f"{finding.reason}: {finding.detail}".removesuffix(": ")
    elif change is not None and REWRITTEN in gate.fail_on:
        rule, text = REWRITTEN, f"{REWRITTEN}: {change}"
    else:
        if change is not None:
            ET.SubElement(test, "system-out").text = _printable(change)
        return
    ignored = gate.ignored(report, look, finding, rule)
    if ignored is not None:
        ET.SubElement(test, "skipped", message=f"{ignored}: {_printable(text)}")
    else:
        ET.SubElement(test, "failure", message=_printable(text), type=rule)


def _count(suite: ET.Element) -> None:
    suite.set("tests", str(len(suite)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", "0")


def _printable(text: str) -> str:
    return _CONTROL.sub("\ufffd", text)
