"""`tito lint` as a gate: results for other programs, a baseline, and the comparison of two templates."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from tests.io.lint.lint_folders import EOS, EXACT, NO_TOOLS, STRIPS, SWITCHED, chatml, folder
from tito_core import Reason
from tito_io.cli.errors import BAD_INPUT
from tito_io.lint import command
from tito_io.lint.advice import WARNINGS
from tito_io.lint.command import REASONS, REFUSED, lint, status
from tito_io.lint.gate import REWRITTEN, Gate
from tito_io.lint.results import RULES, github, junit, results, sarif
from tito_io.lint.results import Result as LintResult
from tito_io.lint.run import LintSettings, lint_subject
from tito_io.lint.subject import SubjectOptions, subjects
from tito_io.lint.verdict import CONTRADICTED

ROOT = Path(__file__).parents[3]


def run(*options: object) -> Result:
    return CliRunner().invoke(lint, [str(option) for option in options])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make three folders: a template that is exact, one that refuses tools, and a broken one."""
    folder(tmp_path / "exact", STRIPS)
    folder(tmp_path / "refuses", f"\n{NO_TOOLS}")
    folder(tmp_path / "broken", "\n{% for %}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_github_shows_refusals_as_errors_beside_the_template(here: Path) -> None:
    (here / "own.jinja").write_text(NO_TOOLS)
    result = run("exact", "refuses", "broken", "own.jinja", "--tokenizer", "exact", "--format", "github")
    notice, error, broken, own = result.stdout.splitlines()
    assert result.exit_code == BAD_INPUT
    assert notice.startswith(
        "::notice file=exact/chat_template.jinja,line=1,title=tito lint HISTORY_REWRITTEN::"
    )
    assert error.startswith(
        "::error file=refuses/chat_template.jinja,line=2,title=tito lint TEMPLATE_REFUSED::"
    )
    assert error.endswith("refused: refuses/chat_template.jinja, line 2: raise_exception: no tools here")
    assert own.startswith("::error file=own.jinja,line=1,title=tito lint TEMPLATE_REFUSED::")
    assert own.endswith("refused: own.jinja, line 1: raise_exception: no tools here")
    assert broken.startswith("::error file=broken/chat_template.jinja,line=2,title=tito lint LINT_ERROR::")


def test_an_annotation_is_one_line_whatever_it_quotes() -> None:
    text = github([LintResult(rule="ODD_STOP", text="50%\r\n::error::x", file="a:b,c\n.jinja")])
    assert text == "::error file=a%3Ab%2Cc%0A.jinja,line=1,title=tito lint ODD_STOP::50%25%0D%0A::error::x\n"


SARIF_KEYS = frozenset(
    [
        "ruleId",
        "ruleIndex",
        "level",
        "message",
        "locations",
        "partialFingerprints",
        "properties",
        "suppressions",
    ]
)
"""The keys of a result that are used; the schema of SARIF 2.1.0 allows these and no unknown ones."""


def test_sarif_has_a_result_for_each_outcome(here: Path) -> None:
    (here / "baseline.json").write_text(run("refuses", "--format", "json").stdout)
    log = json.loads(run("exact", "refuses", "broken", "--format", "sarif").stdout)
    assert (log["version"], len(log["runs"])) == ("2.1.0", 1)
    (entry,) = log["runs"]
    rules = [rule["id"] for rule in entry["tool"]["driver"]["rules"]]
    found = [(one["ruleId"], one["level"], _place(one)) for one in entry["results"]]
    assert found == [
        ("HISTORY_REWRITTEN", "note", ("exact/chat_template.jinja", 1)),
        ("TEMPLATE_REFUSED", "error", ("refuses/chat_template.jinja", 2)),
        ("LINT_ERROR", "error", ("broken/chat_template.jinja", 2)),
    ]
    for one in entry["results"]:
        assert set(one) <= SARIF_KEYS
        assert rules[one["ruleIndex"]] == one["ruleId"]
    assert len({json.dumps(one["partialFingerprints"]) for one in entry["results"]}) == 3
    known = json.loads(run("refuses", "--baseline", "baseline.json", "--format", "sarif").stdout)
    (one,) = known["runs"][0]["results"]
    assert one["suppressions"] == [{"kind": "external", "justification": "known"}]


def _place(result: dict[str, Any]) -> tuple[str, int]:
    (location,) = result["locations"]
    place = location["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]["startLine"]


def test_every_reason_of_a_refusal_is_a_rule() -> None:
    assert set(REASONS) <= set(RULES)
    assert CONTRADICTED in REASONS
    assert set(RULES) - {"LINT_ERROR", "HISTORY_REWRITTEN", CONTRADICTED, *WARNINGS} <= set(
        Reason.__members__
    )
    assert sarif([LintResult(rule=name, text="x", file="/a b.jinja") for name in RULES])


def test_an_opener_that_ends_turns_is_to_be_named_as_a_stop(here: Path) -> None:
    """GLM-4.5's folder without `generation_config.json`: nothing but the end of text is a stop."""
    opened = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    opened += "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    folder(here / "opened", opened, stop=EOS)
    openers = [f"--special-token=<|{role}|>" for role in ("user", "system", "assistant", "tool")]
    line = "title=tito lint OPENER_NOT_A_STOP::"
    assert line in run("opened", *openers, "--format", "github").stdout
    assert line not in run("opened", *openers, "--stop-id=<|user|>", "--format", "github").stdout


def test_wrong_stops_and_unknown_markers_are_warnings(here: Path) -> None:
    folder(here / "stops", EXACT, stop=EOS)
    (here / "added.jinja").write_text(EXACT.replace("<|im_start|>", "<|go|>"))
    folder(here / "unknown", EXACT.replace("<|im_start|>", "{{ '<|' ~ 'go' ~ '|>' }}"))
    result = run("stops", "unknown", "added.jinja", "--tokenizer", "stops", "--format", "github")
    assert result.exit_code == 0
    warned = [line.split("::")[1] for line in result.stdout.splitlines() if line.startswith("::warning ")]
    assert warned == [
        "warning file=stops/chat_template.jinja,line=1,title=tito lint CLOSE_NOT_A_STOP",
        "warning file=unknown/chat_template.jinja,line=1,title=tito lint MARKER_NOT_IN_VOCABULARY",
        "warning file=added.jinja,line=1,title=tito lint CLOSE_NOT_A_STOP",
        "warning file=added.jinja,line=1,title=tito lint MARKER_NOT_IN_VOCABULARY",
    ]
    assert result.stdout.count("the vocabulary has no token `<|go|>`") == 2
    (entry,) = json.loads(run("stops", "--format", "sarif").stdout)["runs"]
    assert [(one["ruleId"], one["level"]) for one in entry["results"]] == [("CLOSE_NOT_A_STOP", "warning")]
    root = ET.fromstring(run("stops", "--format", "junit").stdout)  # noqa: S314  # our own
    (test,) = (case for case in root.iter("testcase") if case.get("name") in WARNINGS)
    assert [(one.tag, (one.text or "")[:9]) for one in test] == [("system-out", "warning: ")]


def test_junit_has_a_test_for_each_case(here: Path) -> None:
    path = folder(here / "quotes", chatml(before="{{ raise_exception('<&\x01\ufffe') if tools }}"))
    reports = json.loads(run("refuses", path.name, "--format", "json").stdout)
    root = ET.fromstring(run("refuses", path.name, "broken", "--format", "junit").stdout)  # noqa: S314  # our own
    suites = {suite.get("name"): suite for suite in root}
    assert "refuses default with tools" in suites
    assert [suite.get("errors") for suite in root][-1] == "1"
    cases = [case for report in reports for case in report["cases"]]
    assert sum(int(suite.get("tests", 0)) for suite in root) == len(cases) + 1
    named = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(set(named)) == len(named)
    refused = sum(case["verdict"] == "refused" for case in cases)
    assert sum(int(suite.get("failures", 0)) for suite in root) == len(root.findall(".//failure")) == refused
    accepted = ET.fromstring(run("refuses", "--accept", "TEMPLATE_REFUSED", "--format", "junit").stdout)  # noqa: S314  # likewise
    assert not accepted.findall(".//failure")
    assert accepted.findall(".//skipped")[0].get("message", "").startswith("accepted: TEMPLATE_REFUSED: ")


def test_only_what_is_new_fails_with_a_baseline(here: Path) -> None:
    (here / "known.json").write_text(run("refuses", "exact", "--json").stdout)
    assert run("refuses").exit_code == REFUSED
    assert run("./refuses", "--baseline", "known.json", "--format", "github").exit_code == 0
    (here / "refuses" / "chat_template.jinja").write_text(NO_TOOLS.replace("'tool'", "'system'"))
    newly = run("refuses", "--baseline", "known.json", "--format", "github")
    assert newly.exit_code == REFUSED
    assert "::error" in newly.stdout
    assert run("refuses", "broken", "--baseline", "known.json").exit_code == BAD_INPUT


def test_a_baseline_knows_a_path_however_it_is_typed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "known.json").write_text(run("refuses", "--json").stdout)
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    for typed in (here / "refuses", "../refuses"):
        known = run(typed, "--baseline", "../known.json")
        assert known.exit_code == 0
        last = known.stdout.splitlines()[-1]
        assert re.fullmatch(r"(\d+) refused: \1 known, 0 new; 0 entries of the baseline are gone", last)
    (here / "refuses" / "chat_template.jinja").write_text(EXACT)
    mended = run("../refuses", "--baseline", "../known.json")
    gone = {(case["after"], *case["shape"]) for case in _refused_cases(here / "known.json")}
    assert mended.stdout.splitlines()[-1] == (
        f"0 refused: 0 known, 0 new; {len(gone)} entries of the baseline are gone"
    )
    other = run("../exact", "--baseline", "../known.json").stdout
    assert other.splitlines()[-1] == "0 refused: 0 known, 0 new; 0 entries of the baseline are gone"


def _refused_cases(file: Path) -> list[dict[str, Any]]:
    (report,) = json.loads(file.read_text())
    return [case for case in report["cases"] if case["verdict"] == "refused"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[1]", "give what `tito lint --format json` printed"),
        ('[{"cases": [{}]}]', "give what `tito lint --format json` printed"),
        ("\xff", "is not valid JSON"),
    ],
)
def test_a_baseline_that_cannot_be_read_is_an_error(here: Path, content: str | None, said: str) -> None:
    if content is not None:
        (here / "known.json").write_bytes(content.encode("latin-1"))
    result = run("exact", "--baseline", "known.json")
    assert result.exit_code == BAD_INPUT
    assert f"--baseline known.json: {said}" in result.stderr


@pytest.mark.usefixtures("here")
def test_a_rewritten_history_fails_on_demand_and_only_if_it_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    (subject,) = subjects("exact", SubjectOptions())
    report = lint_subject(subject, LintSettings())
    monkeypatch.setattr(command, "lint_subject", lambda *_: report)  # it is linted once
    result = run("exact", "--fail-on", REWRITTEN, "--write-baseline", "baseline.json")
    assert result.exit_code == 0  # all of today's cases are known
    assert re.search(r"(\d+) refused or rewritten: \1 known, 0 new; 0 entries", result.stdout)
    refusals = run("exact", "--baseline", "baseline.json").stdout
    assert "0 refused: 0 known, 0 new; 0 entries of the baseline are gone" in refusals
    assert not Gate().fails(report)
    new, known = Gate.of((), None, [REWRITTEN]), Gate.of((), Path("baseline.json"), [REWRITTEN])
    assert (status([report], new), status([report], known)) == (REFUSED, 0)
    assert [line.partition(" ")[0] for line in github(results([report], Gate())).splitlines()] == ["::notice"]
    assert [line.partition(" ")[0] for line in github(results([report], new)).splitlines()] == ["::error"]
    assert github(results([report], known)) == ""
    assert [one["level"] for one in sarif(results([report], new))["runs"][0]["results"]] == ["error"]
    assert sarif(results([report], known))["runs"][0]["results"][0]["suppressions"]
    for gate, name, others in ((new, "failures", "skipped"), (known, "skipped", "failures")):
        suites = ET.fromstring(junit([report], gate))  # noqa: S314  # our own
        assert sum(int(suite.get(name, "")) for suite in suites)
        assert not sum(int(suite.get(others, "")) for suite in suites)


def test_a_diff_tells_seams_verdicts_and_histories(here: Path) -> None:
    folder(here / "other", chatml(close="<|im_end|><eos>"))
    changed = run("exact", "other", "--diff")
    assert changed.exit_code == REFUSED
    assert "close: after each turn: `<|im_end|>" in changed.stdout
    assert re.search(
        r"seam: with tools: before a user message: close: .* -> `<\|im_end\|><eos>`", changed.stdout
    )
    assert re.search(
        r"history: with tools: .*: a fresh render drops .* -> a fresh render keeps it", changed.stdout
    )
    refused = run("exact", "refuses", "--diff", "--format", "json")
    assert {"verdict", "history"} <= {one["what"] for one in json.loads(refused.stdout)}
    assert {one["two"] for one in json.loads(refused.stdout) if one["what"] == "verdict"} == {
        "refused, TEMPLATE_REFUSED"
    }
    (shown,) = (one for one in json.loads(refused.stdout) if one["where"].endswith("before a tool result"))
    assert shown["one"].startswith("`<|im_end|>")
    assert shown["two"] == "not shown: the template rejects the probe"
    folder(here / "switched", SWITCHED)
    folder(here / "plain", EXACT)
    assert "rendering: with tools, enable_thinking=false: " in run("plain", "switched", "--diff").stdout


def test_a_template_does_the_same_as_itself(here: Path) -> None:
    result = run("exact", "exact", "--diff")
    assert (result.exit_code, result.stdout) == (0, "the templates do the same in every case\n")
    assert here.is_dir()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["exact", "--diff"], "--diff compares two templates"),
        (["exact", "refuses", "--diff", "--format", "sarif"], "--format sarif has no effect with --diff"),
        (["exact", "refuses", "--diff", "--accept", "ODD_STOP"], "--accept has no effect with --diff"),
        (["exact", "exact", "--diff", "--fail-on", REWRITTEN], "--fail-on has no effect with --diff"),
        (["exact", "--baseline", "a", "--write-baseline", "b"], "--write-baseline contradict each other"),
        (["exact", "--write-baseline", "nowhere/b"], "--write-baseline nowhere/b: give a file in a folder"),
        (["exact", "--json", "--format", "junit"], "--json and --format junit contradict each other"),
        (["exact", "broken", "--diff"], "broken/chat_template.jinja, line 2"),
        (["exact", "several", "--diff"], "choose with --template NAME"),
    ],
)
def test_options_that_contradict_each_other_are_refused(here: Path, options: list[str], said: str) -> None:
    several = folder(here / "several") / "additional_chat_templates"
    several.mkdir()
    (several / "rag.jinja").write_text(EXACT)
    result = run(*options)
    assert result.exit_code == BAD_INPUT
    assert said in result.stderr


def test_the_hook_runs_this_command_with_its_extra() -> None:
    hook = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "\n  entry: tito lint\n" in hook
    assert '\n  additional_dependencies: [".[io]"]\n' in hook
    (files,) = re.findall(r"\n  files: (.+)\n", hook)
    assert re.search(files, "templates/chat_template.jinja")
