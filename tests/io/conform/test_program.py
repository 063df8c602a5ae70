"""A program that misbehaves costs one clear error for each vector, and never a hang."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tito_io.conform.judge import Verdict, judge
from tito_io.conform.naive import answer as naive
from tito_io.conform.program import MOST_FAILURES
from tito_io.conform.report import Report, failures, table, to_html
from tito_io.conform.run import report_on
from tito_io.conform.vector import ConformError, Vector

READ = "import json,sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
ANSWER = "    print(json.dumps({'id': asked['id'], 'refusal': 'no'}), flush=True)\n"


def asked(vectors: dict[str, Vector], code: str, count: int = 2, seconds: float = 30.0) -> Report:
    """Ask a small program, without its site packages so that it starts at once."""
    return report_on([sys.executable, "-S", "-c", code], "it", list(vectors.values())[:count], seconds)


def details(report: Report) -> list[str]:
    return [one.detail for one in report.judged]


def test_a_program_answers_each_question(vectors: dict[str, Vector]) -> None:
    report = asked(vectors, READ + ANSWER, 5)
    assert [one.verdict for one in report.judged] == [Verdict.OVER_REFUSED] * 5
    assert [one.vector for one in report.judged] == list(vectors.values())[:5]


def test_a_program_is_not_sent_the_answer(vectors: dict[str, Vector]) -> None:
    report = asked(
        vectors,
        READ
        + "    said = [*sorted(asked), '{#' in asked['template']]\n"
        + "    print(json.dumps({'id': asked['id'], 'error': said}), flush=True)\n",
        1,
    )
    (said,) = details(report)
    assert "trajectory" in said
    assert "expected" not in said
    assert "'set'" not in said
    assert said.endswith("False]")  # no comment that shows where the answer begins


def test_a_program_that_dies_is_started_again(vectors: dict[str, Vector], tmp_path: Path) -> None:
    flag = tmp_path / "died"
    dies = f"if not os.path.exists({str(flag)!r}):\n        open({str(flag)!r}, 'w'); os._exit(7)\n"
    code = f"import os\n{READ}    {dies}{ANSWER}"
    first, second = asked(vectors, code).judged
    assert (first.verdict, first.detail) == (Verdict.ERROR, "ended with status 7 before it answered")
    assert second.verdict is Verdict.OVER_REFUSED


def test_the_page_groups_failures_by_cause_and_opens_one_of_each(vectors: dict[str, Vector]) -> None:
    names = [
        "valid/opens-thinking/question",
        "valid/chatml/question",
        "valid/chatml/third-turn",
        "refused/first-turn",
    ]
    judged = [judge(vectors[name], naive(vectors[name].question)) for name in names]
    report = Report("naive", judged)
    groups = [[one.vector.id for one in group] for group in report.groups]
    assert groups == [names[1:3], names[:1], names[3:]]  # the largest first
    page = to_html(report)
    headings = re.findall(r"<h3>(.*?)</h3>", page)
    assert [re.sub(r"<.*?>", "", heading).split()[-2:] for heading in headings] == [
        ["2", "vectors"],
        ["1", "vector"],
        ["1", "vector"],
    ]
    opened = re.findall(r'<details class="vector" open><summary><code>(.*?)</code>', page)
    assert opened == [names[1], names[0], names[3]]
    assert re.findall(r'<details class="vector"><summary><code>(.*?)</code>', page) == [names[2]]


def test_a_program_that_always_dies_is_given_up(vectors: dict[str, Vector]) -> None:
    report = asked(vectors, "raise SystemExit(3)", MOST_FAILURES + 2)
    said = details(report)
    assert said[:MOST_FAILURES] == ["ended with status 3 before it answered"] * MOST_FAILURES
    reason = "not asked: the program failed 3 times in a row; the last time: "
    assert said[MOST_FAILURES:] == [reason + said[0]] * 2
    assert (report.count(Verdict.ERROR), report.count(Verdict.NOT_ASKED)) == (MOST_FAILURES, 2)
    assert [column.header for column in table(report).columns][-2:] == ["error", "not asked"]
    shown = failures(report, differences=False).plain
    assert shown.endswith("and 2 vectors were not asked: the program failed 3 times in a row\n")
    assert shown.count("\n") == MOST_FAILURES + 1
    assert "and 2 vectors were not asked" in to_html(report)
    assert to_html(report).count("not asked: ") == 1


def test_a_program_that_dies_now_and_then_is_not_given_up(vectors: dict[str, Vector]) -> None:
    once = READ.replace("for line in sys.stdin:\n", "for line in [sys.stdin.readline()]:\n")
    report = asked(vectors, once + ANSWER, 2 * MOST_FAILURES + 3)
    verdicts = [one.verdict for one in report.judged]
    assert verdicts[::2] == [Verdict.OVER_REFUSED] * (MOST_FAILURES + 2)
    assert details(report)[1::2] == ["ended with status 0 before it answered"] * (MOST_FAILURES + 1)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("print('Loading')", "wrote 'Loading', which is not JSON: standard output is for answers only"),
        (
            "print(json.dumps({'id': 'other', 'refusal': ''}))",
            "answered 'other' when 'valid/chatml/question' was",
        ),
        ("print('{}')", "its answer has no `id`: repeat the question's, 'valid/chatml/question'"),
        ("print('7')", "the answer is a number: give a JSON object"),
        ("import os; os.close(1); sys.stdin.read()", "closed its output before it answered"),
    ],
)
def test_what_is_no_answer_is_named(
    vectors: dict[str, Vector], monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.setattr("tito_io.conform.program.PATIENCE", 0.2)
    (first,) = asked(vectors, f"{READ}    {line}; sys.stdout.flush()\n", 1).judged
    assert first.verdict is Verdict.ERROR
    assert first.detail.startswith(said)


def test_a_program_that_does_not_answer_is_stopped(vectors: dict[str, Vector], tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os,time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    report = asked(vectors, code, 1, seconds=0.2)
    assert details(report) == ["no answer within 0.2 s (see --timeout)"]
    if pid.exists():  # it may have been stopped before it wrote
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_a_program_that_writes_without_end_is_stopped(
    vectors: dict[str, Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tito_io.conform.program.LONGEST_ANSWER", 1 << 17)
    code = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    assert details(asked(vectors, code, 1)) == ["wrote 131072 bytes without a line break"]


def test_a_program_that_does_not_read_is_no_hang(vectors: dict[str, Vector]) -> None:
    one = next(iter(vectors.values()))
    large = Vector({**one.data, "title": "", "template": one.data["template"] + " " * (1 << 20)})
    report = report_on([sys.executable, "-S", "-c", "import time; time.sleep(600)"], "it", [large], 0.3)
    assert details(report) == ["no answer within 0.3 s (see --timeout)"]


def test_a_line_more_than_was_asked_for_is_an_error(vectors: dict[str, Vector]) -> None:
    second = asked(vectors, READ + ANSWER * 2, 2).judged[1]
    assert second.verdict is Verdict.ERROR
    assert second.detail.startswith("answered 'valid/chatml/question' when 'valid/chatml/result' was asked")
    with pytest.raises(ConformError, match="wrote more lines than it was asked for"):
        asked(vectors, READ + ANSWER * 2, 1)


def test_a_program_that_cannot_be_started_ends_the_command(vectors: dict[str, Vector]) -> None:
    with pytest.raises(ConformError, match="no-such-program: cannot be started: No such file"):
        report_on(["no-such-program"], "it", vectors.values(), 1.0)


def test_a_script_that_is_not_executable_is_named_with_a_hint(
    vectors: dict[str, Vector], tmp_path: Path
) -> None:
    script = tmp_path / "page.py"
    script.write_text("pass")
    with pytest.raises(
        ConformError, match=r"page.py: cannot be started: .*; give its interpreter, such as: py"
    ):
        report_on([str(script)], "it", vectors.values(), 1.0)


def test_the_last_line_of_stderr_is_in_the_verdict(
    vectors: dict[str, Vector], capfd: pytest.CaptureFixture[str]
) -> None:
    report = asked(vectors, "import sys; sys.stderr.write('first\\n\\x1b[31mno model\\n\\n'); sys.exit(1)", 1)
    reason = "ended with status 1 before it answered; the last line of its stderr: ?[31mno model"
    assert details(report) == [reason]
    assert capfd.readouterr().err == "first\n\x1b[31mno model\n\n"
    silent = (
        READ + "    sys.stderr.write('z' * 300); sys.stderr.flush(); sys.stdin.read(); sys.stdin.close()\n"
    )
    (said,) = details(asked(vectors, silent + "import time; time.sleep(600)", 1, seconds=1.0))
    assert said in (
        "no answer within 1 s (see --timeout); the last line of its stderr: " + "z" * 200 + "...",
        "no answer within 1 s (see --timeout)",  # it was stopped before it wrote
    )
