"""The edge of the command line: what goes wrong is a line in plain words, and its status says what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import AbstractContextManager
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from tests.answering import answering
from tests.interrupts import interrupt
from tito_io.cli import main as entry
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED, LONGEST, error_text, words
from tito_io.cli.group import COMMANDS, tito
from tito_io.cli.main import INTERRUPTED
from tito_io.embedded import write_family
from tito_io.engines.protocol import AbortedError, ArgumentError, EngineAnswer, EngineError, Reply, Usage
from tito_io.extras import EXTRAS, extra_of, install

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
PAGE = (
    "<!DOCTYPE html><html><head><title>404\n Not Found</title><style>h1 {}</style></head>"
    f"<body><h1>Nothing here</h1>{'<p>x</p>' * 5000}</body></html>"
)
BARE = "<html><head><script>var a = '<b>'</script></head><center><h1>502 Bad Gateway</h1></center>"
NAMES = orjson.dumps({"error": {"message": "CUDA error\n\x1b[31m" + "y" * 900, "code": 500}}).decode()


def alike(status: int, body: str) -> AbstractContextManager[str]:
    """Run a server that answers everything alike; its base URL."""
    return answering(lambda *_: (status, body.encode()))


def rollout(engine: str, where: str, *options: str) -> Result:
    return CliRunner().invoke(tito, ["rollout", "--engine", engine, "--base-url", where, *options])


@pytest.mark.parametrize("engine", ["vllm", "sglang", "miles"])
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (404, PAGE, "404 Not Found"),
        (502, BARE, "502 Bad Gateway"),
        (401, '{"error": "no such key"}', "no such key"),
        (500, NAMES, "CUDA error \\x1b[31my"),
        (422, '{"detail": [{"loc": ["body", "x"]}]}', '{"detail":[{"loc":["body","x"]}]}'),
    ],
)
def test_an_engine_s_own_words_are_one_short_line(engine: str, status: int, body: str, said: str) -> None:
    with alike(status, body) as where:
        result = rollout(engine, where, "--json")
    (line,) = result.stderr.splitlines()
    assert result.exit_code == ENGINE_FAILED
    assert line.startswith("tito: ")
    assert f"; it says: {said}" in line or f"; it says: [{said}" in line
    assert len(line.partition("it says: ")[2]) <= LONGEST + 6
    for hidden in ("answer.body", "base_url", "api_key", "<h1", "Traceback"):
        assert hidden not in line
    summary = orjson.loads(result.stdout.splitlines()[-1])["summary"]
    assert f"tito: {summary['error']}" == line


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_page_that_calls_itself_a_success_is_told_by_its_title(engine: str) -> None:
    with alike(200, PAGE) as where:
        result = rollout(engine, where)
    assert result.exit_code == ENGINE_FAILED
    assert result.stderr.endswith("the answer is not JSON; is it an engine?; it says: 404 Not Found\n")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "miles"])
def test_a_wrong_address_is_told_by_its_option(engine: str) -> None:
    result = rollout(engine, "http://127.0.0.1:9")
    assert result.exit_code == ENGINE_FAILED
    assert result.stderr.startswith(("tito: GET http://127.0.0.1:9/", "tito: POST http://127.0.0.1:9/"))
    assert result.stderr.endswith("nothing answers; start the engine, or correct --base-url\n")


@given(st.text(max_size=500) | st.text("<>/!abt itlehead&;=\"'-\n", max_size=300))
def test_words_are_a_line_whatever_an_answer_holds(text: str) -> None:
    for body in (text, text.encode(errors="replace"), f"<{text}", {"error": {"message": text}}, [text]):
        said = words(body)
        assert len(said) <= LONGEST + len("...")
        assert len(said.splitlines()) <= 1 or not text.isprintable()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, ""),
        ("", ""),
        ({}, "{}"),
        ({"error": {}}, '{"error":{}}'),
        ([1, 2], "[1,2]"),
        (b"\xffno", "\ufffdno"),
        ("<html><title></title><p>a <b>b</b>", "a"),
        ("<<<>", "<<<>"),
        ({"n": 2**70}, "{'n': 1180591620717411303424}"),
    ],
)
def test_an_answer_is_told_as_it_is_where_it_has_no_words(body: object, said: str) -> None:
    assert words(body) == said


def test_words_that_the_error_has_are_not_repeated() -> None:
    error = EngineError(
        "refused (Token id 9 is out of vocabulary): correct it", EngineAnswer(400, "Token id 9 is")
    )
    assert error_text(error) == str(error)


@pytest.mark.parametrize(
    ("message", "parameter", "text"),
    [
        ("nothing answers; correct the base_url", "base_url", "nothing answers; correct --base-url"),
        ("vocab_size: unknown; give the number", "vocab_size", "--vocab-size: unknown; give the number"),
        ("pass the folder as `family`", "family", "pass the folder as --family"),
        ("allow more with `timeout`", "timeout", "allow more with --timeout"),
        (
            "GET http://h/base_url_x: check the base_url",
            "base_url",
            "GET http://h/base_url_x: check --base-url",
        ),
        ("correct the base_url", "", "correct the base_url"),
        ("give a route", "route", "give a route"),
    ],
)
def test_the_argument_that_an_error_names_becomes_an_option(message: str, parameter: str, text: str) -> None:
    assert error_text(EngineError(message, parameter=parameter, hint="for programs")) == text
    assert error_text(ArgumentError(message, parameter=parameter, hint="for programs")) == text


def test_a_turn_that_was_given_up_is_told_with_its_ids() -> None:
    error = AbortedError("the engine gave the turn up", hint="what was sampled is in `partial`")
    error.partial = Reply(
        prompt_ids=(1,),
        completion_ids=(2, 3),
        logprobs=None,
        message=None,
        text="",
        finish_reason="abort",
        usage=Usage(prompt_tokens=1, completion_tokens=2),
        raw={},
    )
    assert error_text(error) == "the engine gave the turn up; 2 ids had been sampled"


def test_every_extra_is_one_of_the_package_and_brings_its_module() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for module, extra in EXTRAS.items():
        needed = " ".join(extras[extra]).replace("-", "_")
        assert module in needed, module
    assert extra_of("anyio") == "io"


@pytest.mark.parametrize(
    ("command", "module"),
    [("rollout", "click"), ("rollout", "orjson"), ("rollout", "rich.console"), ("serve", "uvicorn")],
)
def test_a_module_that_is_missing_is_told_with_its_extra(command: str, module: str) -> None:
    lacking = f"import sys; sys.modules[{module!r}] = None; sys.argv[1:] = [{command!r}]"
    program = f"{lacking}; from tito_io.cli.main import main; main()"
    asked = [sys.executable, "-c", program]
    done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == BAD_INPUT
    assert done.stderr.startswith("tito")
    assert len(done.stderr.splitlines()) == 1
    assert f"{module.partition('.')[0]} is missing: {install(extra_of(module))}" in done.stderr


def test_the_hub_s_client_is_told_like_every_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = CliRunner().invoke(tito, ["lint", "some/model"])
    assert result.exit_code == BAD_INPUT
    assert result.stderr.endswith(f"the hub needs huggingface_hub: {install('hub')}\n")


def started(*options: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heeding}; from tito_io.cli.main import main; main()"
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-c", program, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, **(environ or {})},
    )


@pytest.mark.parametrize("options", [("rollout", "--turns", "3", "--json"), ("rollout", "--turns", "3")])
def test_a_reader_who_leaves_is_no_verdict(options: tuple[str, ...]) -> None:
    with started(*options) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        try:
            assert run.wait(60) == BAD_INPUT
        finally:
            run.kill()
        assert run.stderr.read() == ""


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_files_are_written_whole_after_the_reader_leaves(form: tuple[str, ...], tmp_path: Path) -> None:
    calls, folder = tmp_path / "calls.jsonl", write_family(tmp_path / "family")

    def unread(*options: str) -> int:
        with started(*options, *form) as run:
            assert run.stdout is not None
            assert run.stderr is not None
            run.stdout.close()
            try:
                status = run.wait(60)
            finally:
                run.kill()
            assert run.stderr.read() == ""
            return status

    assert unread("rollout", "--turns", "4", "--calls", str(calls)) == 0
    assert len(calls.read_text(encoding="utf-8").splitlines()) == 4
    pages = tmp_path / "audit.html", tmp_path / "lint.html"
    assert unread("audit", str(calls), "--family", str(folder), "--html", str(pages[0])) == 0
    assert unread("lint", str(folder), "--html", str(pages[1])) == lint_status(folder)
    for page in pages:
        assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")


def lint_status(folder: Path) -> int:
    """Return the exit status of `tito lint` with a reader."""
    with started("lint", str(folder)) as run:
        run.communicate(timeout=60)
    assert run.returncode != BAD_INPUT
    return run.returncode


def test_an_interrupt_ends_a_rollout_with_a_line() -> None:
    with started("rollout", "--turns", "100000", "--max-tokens", "1", "--json") as run:
        assert run.stdout is not None
        assert run.stdout.readline()
        time.sleep(0.1)
        _, said = interrupt(run)
    assert (run.returncode, said) == (INTERRUPTED, "tito: interrupted\n")


def test_an_interrupt_before_a_command_is_there_is_heeded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "_run", interrupted)
    with pytest.raises(SystemExit) as done:
        entry.main()
    assert (done.value.code, capsys.readouterr().err) == (INTERRUPTED, "tito: interrupted\n")


LOADING = """
import signal
signal.raise_signal(signal.SIGINT)
import click
serve = click.Command("serve")
"""


def test_an_interrupt_waits_for_a_command_to_be_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module that is not Python may crash where an interrupt comes while it is imported."""
    (tmp_path / "interrupted_command.py").write_text(LOADING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "serve", "interrupted_command")
    monkeypatch.setattr(sys, "argv", ["tito", "serve"])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        with pytest.raises(SystemExit) as done:
            entry.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.value.code, capsys.readouterr().err) == (INTERRUPTED, "tito: interrupted\n")
    assert sys.modules.pop("interrupted_command").serve.name == "serve"  # loaded to its end


@pytest.mark.parametrize("options", [("rollout", "--family"), ("lint",), ("samples",)])
def test_a_path_that_the_system_refuses_is_named(options: tuple[str, ...]) -> None:
    path = "x" * 300
    with started(*options, path) as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out, err) == (BAD_INPUT, "", f"tito: {path}: File name too long\n")


def test_a_choice_that_was_perhaps_meant_is_named() -> None:
    result = CliRunner().invoke(tito, ["rollout", "--engine", "vlm"])
    assert result.stderr.rstrip().endswith("'miles'; did you mean 'vllm'?")


def test_an_unreadable_configuration_is_named_with_its_variable() -> None:
    given = CliRunner().invoke(tito, ["--config", "nosuch", "rollout"])
    env = CliRunner().invoke(tito, ["rollout"], env={"TITO_CONFIG": "nosuch"})
    assert "Error: nosuch: cannot be read" in given.stderr
    assert "Error: TITO_CONFIG: nosuch: cannot be read" in env.stderr


def test_shells_may_complete_words() -> None:
    with started(environ={"_TITO_COMPLETE": "bash_source"}) as run:
        out, _ = run.communicate(timeout=60)
    assert (run.returncode, "_tito_completion" in out) == (0, True)


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (("--version",), 0, "tito, version"),
        (("rollout", "--help"), 0, "Usage: tito rollout"),
        (("rollout", "--turns", "2"), 0, "sampled ids kept"),
        (("nope",), BAD_INPUT, "No such command 'nope'"),
        (("rollout", "--script", "/nowhere"), BAD_INPUT, "cannot read the script /nowhere"),
    ],
)
def test_the_entry_ends_with_the_command_s_status(options: tuple[str, ...], status: int, said: str) -> None:
    with started(*options) as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, said in out + err) == (status, True)


def test_a_terminal_that_lacks_letters_gets_escapes(tmp_path: Path) -> None:
    calls, folder = tmp_path / "calls.jsonl", write_family(tmp_path / "family")
    with started("rollout", "--turns", "3", "--calls", str(calls)) as run:
        run.communicate(timeout=60)
    with started("audit", str(calls), "--family", str(folder), environ={"PYTHONIOENCODING": "ascii"}) as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (0, "")
    assert "drift" in out


def test_where_nobody_listens_nothing_is_said() -> None:
    closed = f"{sys.executable} -m tito_io rollout --turns 2 >&-"
    done = subprocess.run(["/bin/sh", "-c", closed], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
