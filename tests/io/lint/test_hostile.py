"""A template from a stranger cannot keep a lint, nor blow it up, and the next path is linted all the same."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.io.lint.lint_folders import EXACT, chatml, folder, lint
from tito_core import TemplateRefused
from tito_io.families.limits import LimitReached
from tito_io.lint.budget import HEAVY, Budget, Hostile
from tito_io.lint.command import lint as command
from tito_io.lint.report import Verdict

LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "endless": LOOP + EXACT,
    "gigabytes": "{{ 'x' * 2000000000 }}" + EXACT,
    "attributes": "{{ ''.__class__.__mro__[1].__subclasses__() }}" + EXACT,
    "escape": "{{ raise_exception('\x1b]0;owned\x07 \x1b[2J\n second line') }}",
    "surrogate": "{{ '\\ud800' }}" + EXACT,
    "long": "x" * ((1 << 18) + 1),
    "syntax": "{% for %}",
    "empty": " \n",
    "mute": "{% if false %}x{% endif %}{{ '' }}",
}
"""One of each kind; `tests/io/families/test_template.py` has many more of each."""
ERRORS = frozenset(HOSTILE) - {"mute"}
"""Those of which nothing can be said; from the others nothing but an answer is missing."""
LONGEST = 20.0
"""Seconds of processor time for any of these."""


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_template_ends_in_time_with_a_reason(name: str, tmp_path: Path) -> None:
    began = time.thread_time()
    report = lint(folder(tmp_path / name, HOSTILE[name]))
    assert time.thread_time() - began < LONGEST
    if name in ERRORS:
        assert report.error is not None
        assert str(tmp_path) in report.error
    else:
        assert {one.verdict for one in report.findings} == {Verdict.REFUSED}
        assert all(one.reason for one in report.findings)
    told = [report.error or "", *report.notes, *report.advice, *(one.detail for one in report.findings)]
    assert all(text.isprintable() and len(text) < 3000 for text in told)


def test_a_tokenizer_that_fails_at_every_text_is_an_error(tmp_path: Path) -> None:
    path = folder(tmp_path / "slow", chatml(before="a" * 40 + "c"))
    settings = json.loads((path / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a|a)*$"}, "behavior": "Isolated", "invert": False}
    (path / "tokenizer.json").write_text(json.dumps({**settings, "pre_tokenizer": split}))
    report = lint(path)
    assert report.error is not None
    assert "the tokenizer fails on it" in report.error


def test_the_other_paths_go_on(tmp_path: Path) -> None:
    bad = folder(tmp_path / "bad", HOSTILE["gigabytes"])
    good = folder(tmp_path / "good", EXACT)
    result = CliRunner().invoke(command, [str(bad), str(good), str(tmp_path / "none"), "--json"])
    one, two, three = json.loads(result.stdout)
    assert result.exit_code == 2
    assert "not linted: the template exceeds the limits of a lint" in one["error"]
    assert two["error"] is None
    assert {case["verdict"] for case in two["cases"]} == {"exact"}
    assert "there is no such file or folder" in three["error"]
    assert [line.startswith("tito: ") for line in result.stderr.splitlines()] == [True, True]


@pytest.mark.parametrize("heavy", ["{% for i in range(20000) %}{% endfor %}", "{{ 'a b ' * 30000 }}"])
def test_many_renders_that_are_each_within_the_limits_have_a_bound_together(
    heavy: str, tmp_path: Path
) -> None:
    slow = folder(tmp_path / "slow", heavy + EXACT)
    began = time.thread_time()
    report = lint(slow, seconds=0.5)
    assert time.thread_time() - began < 3
    assert report.error is not None
    assert "linting it takes more than 0.5 s" in report.error


def test_a_budget_counts_what_ran_into_a_limit_and_not_what_the_template_rejects() -> None:
    def run(budget: Budget, cause: Exception) -> None:
        with budget.charge():
            raise TemplateRefused("no") from cause

    budget = Budget()
    for _ in range(2 * HEAVY):
        with pytest.raises(TemplateRefused):
            run(budget, ValueError())
    for _ in range(HEAVY - 1):
        with pytest.raises(TemplateRefused):
            run(budget, LimitReached())
    with pytest.raises(Hostile):
        run(budget, LimitReached())
    assert budget.renders == 3 * HEAVY


def test_a_budget_that_is_used_up_is_used_up_by_a_refusal_too() -> None:
    budget = Budget(seconds=0.0)
    with pytest.raises(Hostile), budget.charge():
        pass
    with pytest.raises(Hostile), budget.charge():
        raise TemplateRefused("no")


CLOCK = "{{ strftime_now('%s') }}"


def test_microseconds_after_each_turn_are_refused_and_said(tmp_path: Path) -> None:
    """What is never twice the same cannot be proven."""
    report = lint(folder(tmp_path / "random", chatml(close=f"<|im_end|>{CLOCK % '%f'}\n")))
    assert {one.verdict for one in report.findings} == {Verdict.REFUSED}
    assert (
        "The same messages are rendered differently each time. No result for this template is reliable."
        in report.advice
    )


def test_a_template_that_raises_now_and_then_is_refused_and_goes_no_further(tmp_path: Path) -> None:
    coin = "{% if strftime_now('%f') | int % 3 == 0 %}{{ raise_exception('not now') }}{% endif %}"
    report = lint(folder(tmp_path / "coin", coin + EXACT))
    assert report.error or any(one.verdict is Verdict.REFUSED for one in report.findings)


def test_a_date_is_said_and_does_no_harm(tmp_path: Path) -> None:
    opening = lint(folder(tmp_path / "opening", chatml(before=CLOCK % "%Y-%m-%d")))
    assert {one.verdict for one in opening.findings} == {Verdict.EXACT}
    assert any("the time of day in the opening" in one for one in opening.advice)
    tail = lint(folder(tmp_path / "tail", chatml(close=f"<|im_end|>{CLOCK % '%Y-%m-%d'}\n")))
    assert any("the time of day after each turn" in one for one in tail.advice)


def test_a_lint_is_the_same_whenever_it_runs(tmp_path: Path) -> None:
    made = folder(tmp_path / "dated", chatml(before=CLOCK % "%Y-%m-%d %H:%M:%S"))
    one, two = lint(made), lint(made)
    assert [look.findings for look in one.looks] == [look.findings for look in two.looks]
