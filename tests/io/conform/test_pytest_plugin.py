"""The pytest plugin: a test for each vector, readable failures, and no cost without its option."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tito_io.conform.vector import Vector, line

pytest_plugins = ("pytester",)
Run = Callable[..., pytest.RunResult]
ADAPTER = """
from array import array as Array
from tito_io.conform import naive, reference

exact, wrong = reference.answer, naive.answer
ids = lambda question: reference.answer(question).get("ids")
missing = lambda question: {"not_offered": "no bridge"}
word = "no function"

text = lambda question: "1 2 3"
array = lambda question: Array("q", ids(question))
numbers = lambda question: [Number(one) for one in ids(question)]
empty = lambda question: {}

class Number(int):
    "A number that is no plain int, as numpy's."

def breaks(question):
    raise RuntimeError("out of memory")
"""
NAMES = ("valid/chatml/question", "valid/chatml/result", "refused/window")
COST = """
import sys
before = set(sys.modules)
import tito_io.conform.pytest_plugin as plugin
plugin.pytest_configure(type("Config", (), {"getoption": lambda self, name: None})())
print(sorted(one for one in set(sys.modules) - before if one.startswith(("tito", "attr", "anyio", "jinja2"))))
"""


@pytest.fixture
def run(pytester: pytest.Pytester, vectors: dict[str, Vector], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the plugin is loaded by its name below
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(adapter=ADAPTER)
    pytester.makepyfile(test_other="def test_other(): pass")
    folder = pytester.mkdir("vectors")
    (folder / "some.jsonl").write_text("".join(line(vectors[name]) for name in NAMES))

    def started(target: str, *more: str) -> pytest.RunResult:
        plugin = ("-p", "tito_io.conform.pytest_plugin", "-p", "no:cacheprovider")
        sys.modules.pop("adapter", None)
        return pytester.runpytest_inprocess(
            *plugin, f"--tito-conform={target}", f"--tito-vectors={folder}", *more
        )

    return started


def test_each_vector_is_a_test_beside_others(run: Run) -> None:
    run("adapter:exact").assert_outcomes(passed=4)
    run("adapter:exact", "-k", "tito-conform").assert_outcomes(passed=3, deselected=1)
    run("adapter:exact", "-k", "chatml/question").assert_outcomes(passed=1, deselected=3)


def test_a_failure_shows_texts_and_tokens(run: Run) -> None:
    found = run("adapter:wrong")
    found.assert_outcomes(passed=2, failed=2)
    shown = found.stdout.str()
    assert "wrong: earlier ids are changed: position 24 of 53: 263 'How' is right" in shown
    assert "right text: '<|im_start|>system" in shown
    assert ">        24  263 'How'                     265 'However'" in shown
    assert "FAILED tito-conform::valid/chatml/question" in shown
    assert "refused/window: The template shows the last two messages only" in shown
    assert "Traceback" not in shown


def test_a_function_may_return_ids_or_none(run: Run) -> None:
    run("adapter:ids").assert_outcomes(passed=4)


@pytest.mark.whole
def test_what_is_not_offered_is_skipped_and_an_exception_is_shown(run: Run) -> None:
    run("adapter:missing").assert_outcomes(passed=1, skipped=3)
    found = run("adapter:breaks", "-k", "window")
    found.assert_outcomes(failed=1, deselected=3)
    shown = found.stdout.str()
    assert "RuntimeError: out of memory" in shown
    assert "def breaks(question):" in shown
    assert "runtest" not in shown
    assert len(found.outlines) < 30
    assert "runtest" in run("adapter:breaks", "-k", "window", "--full-trace").stdout.str()


def test_an_array_is_a_list_of_ids_and_a_text_has_a_hint(run: Run) -> None:
    run("adapter:array", "-k", "chatml").assert_outcomes(passed=2, deselected=2)
    run("adapter:numbers", "-k", "chatml").assert_outcomes(passed=2, deselected=2)
    shown = run("adapter:text", "-k", "window").stdout.str()
    assert (
        "error: the function returned a value of type str: give a list of ids, None for a refusal, or"
        in shown
    )
    assert "the answer has 0 of the fields" in run("adapter:empty", "-k", "window").stdout.str()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "--tito-conform=: give MODULE:FUNCTION, such as my_adapter:answer"),
        ("adapter", "give MODULE:FUNCTION, such as my_adapter:answer"),
        ("nowhere:answer", "no module 'nowhere'"),
        ("adapter:nothing", "has no attribute 'nothing'"),
        ("adapter:word", "word is a str: give a function"),
    ],
)
def test_a_wrong_target_is_one_line(run: Run, target: str, said: str) -> None:
    found = run(target)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert said in found.stderr.str()


def test_without_the_option_the_plugin_imports_nothing_of_tito() -> None:
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True)
    assert done.stdout == "['tito_io', 'tito_io.conform', 'tito_io.conform.pytest_plugin']\n"


def test_the_package_registers_the_plugin() -> None:
    written = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\ntito-conform = "tito_io.conform.pytest_plugin"' in written
