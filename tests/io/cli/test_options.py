"""Options come from the command line, else from environment variables, else from a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from tito_io.cli.errors import BAD_INPUT
from tito_io.cli.group import COMMANDS, tito

TESTS_OWN = frozenset(
    f"TITO_{name}"
    for name in [
        "BROWSER",
        "DEPLOY",
        "ENGINES",
        "ENGINE_CACHE",
        "EXCHANGES",
        "FAMILIES",
        "GOLDEN",
        "REDIS",
        "REDIS_SERVER",
    ]
)
"""Variables that this suite reads; an option that had one of them would change what the tests run."""
ONE_LINE = 65
"""How many characters of a summary fit beside the names of the commands in a terminal of 80 columns."""


def run(*options: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(tito, options, env=env)


def turns(result: Result) -> int:
    """Return how many turns a rollout with --json had."""
    assert result.exit_code == 0, result.output
    summary = orjson.loads(result.stdout.splitlines()[-1])["summary"]
    assert isinstance(summary["turns"], int)
    return summary["turns"]


@pytest.mark.parametrize("command", [(), *((name,) for name in sorted(COMMANDS))])
def test_h_is_help(command: tuple[str, ...]) -> None:
    short, long = run(*command, "-h"), run(*command, "--help")
    assert short.exit_code == 0
    assert short.stdout == long.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_by_itself_has_both_names_of_help(name: str) -> None:
    command = tito.get_command(tito.make_context("tito", [name], resilient_parsing=True), name)
    assert command is not None
    assert command.make_context(name, [], resilient_parsing=True).help_option_names == ["-h", "--help"]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_summaries_of_commands_are_whole(columns: int) -> None:
    text = run("--help", env={"COLUMNS": str(columns)}).stdout
    commands = " ".join(text.partition("Commands:")[2].split())
    assert "..." not in commands
    for name in COMMANDS:
        first, *_ = run(name, "--help", env={"COLUMNS": "200"}).stdout.split("\n\n")[1].split("\n")
        assert f"{name} {first.strip()}" in commands
        assert len(first.strip()) <= ONE_LINE


def test_the_help_of_serve_tells_values_and_defaults() -> None:
    text = " ".join(run("serve", "--help", env={"COLUMNS": "200"}).stdout.split())
    for words in (
        "--store memory|sqlite:PATH|redis://... Where",
        "--host ADDRESS",
        "An engine that does not stream sends nothing until the turn ends. Allow for a whole turn.",
        "Default: text; where neither is given, the engine decides.",
    ):
        assert words in text
    assert " TEXT " not in text
    assert "default: (" not in text


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("rolout",), "No such command 'rolout'; did you mean 'rollout'?"),
        (("sample", "x.jsonl"), "No such command 'sample'; did you mean 'samples'?"),
        (("zzz",), "No such command 'zzz'\n"),
        (("rollout", "--turn", "3"), "Did you mean '--turns'?"),
        (("--confg", "x", "rollout"), "Did you mean '--config'?"),
    ],
)
def test_a_misspelled_name_gets_a_suggestion(options: tuple[str, ...], told: str) -> None:
    result = run(*options)
    assert result.exit_code == BAD_INPUT
    assert told.replace("'", "") in result.stderr.replace("'", "")  # click quotes names in later versions


def test_every_option_has_a_variable_of_its_own() -> None:
    context = tito.make_context("tito", ["rollout"], resilient_parsing=True)
    for name in COMMANDS:
        command = tito.get_command(context, name)
        assert command is not None
        variables = [str(option.envvar) for option in command.params if option.param_type_name == "option"]
        assert len(set(variables)) == len(variables) > 0
        assert not TESTS_OWN & set(variables)
        assert all(one == "TITO_API_KEY" or one.startswith(f"TITO_{name.upper()}_") for one in variables)
        shown = "".join(run(name, "--help").stdout.split())
        assert [one for one in variables if f"[envvar:{one}" not in shown] == []


def test_the_variable_of_an_option_is_named_after_the_option() -> None:
    env = {"TITO_ROLLOUT_TURNS": "2", "TITO_ROLLOUT_JSON": "1", "TITO_ROLLOUT_COMPARE": "false"}
    result = run("rollout", env=env)
    assert turns(result) == 2
    assert orjson.loads(result.stdout.splitlines()[0])["drift_ids"] is None


def test_a_wrong_value_is_reported_with_its_variable() -> None:
    result = run("rollout", env={"TITO_ROLLOUT_TURNS": "many"})
    assert result.exit_code == BAD_INPUT
    assert "Invalid value for '--turns': TITO_ROLLOUT_TURNS: 'many' is not a valid integer." in result.stderr
    assert "TITO_ROLLOUT_TURNS" not in run("rollout", "--turns", "many").stderr


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "tito.toml"
    path.write_text(
        '[rollout]\nturns = 3\nmax-tokens = 8\njson = true\ncompare = false\nengine = "embedded"\n'
    )
    return path


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(config: Path) -> None:
    file = ("--config", str(config), "rollout")
    assert turns(run(*file)) == 3
    assert turns(run(*file, env={"TITO_ROLLOUT_TURNS": "2"})) == 2
    assert turns(run(*file, "--turns", "1", env={"TITO_ROLLOUT_TURNS": "2"})) == 1
    assert turns(run("rollout", env={"TITO_CONFIG": str(config)})) == 3


def test_a_file_may_write_underscores_and_begin_with_a_byte_order_mark(config: Path) -> None:
    text = config.read_text().replace("max-tokens", "max_tokens")
    config.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert turns(run("--config", str(config), "rollout")) == 3


def test_an_option_that_may_be_repeated_takes_a_list(tmp_path: Path) -> None:
    config = tmp_path / "tito.toml"
    config.write_text('[lint]\naccept = ["NO_SUCH_REASON"]\n')
    result = run("--config", str(config), "lint", "x")
    assert result.exit_code == BAD_INPUT
    assert f"Invalid value for '--accept': {config}: 'NO_SUCH_REASON' is not one of" in result.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[rolout]\n", "[rolout] is not a command; did you mean 'rollout'?"),
        ("turns = 3\n", "turns is in no section: turns is an option of rollout; write it below [rollout]"),
        (
            "max_line = 3\n",
            "max_line is in no section: max-line is an option of audit, samples; write it below [audit]",
        ),
        (
            "colour = 3\n",
            "colour is in no section, and no command has such an option; the sections are audit, ",
        ),
        (
            "[rollout]\nforgive = []\n",
            "[rollout] forgive is not an option of rollout: forgive is an option of serve",
        ),
        ("rollout = 3\n", "rollout must be a section: write [rollout] on its own line"),
        ("[rollout]\nturn = 3\n", "[rollout] turn is not an option of rollout; did you mean 'turns'?"),
        ("[rollout]\nas_json = true\n", "[rollout] as_json is not an option"),
        ("[rollout]\nturns = [3]\n", "[rollout] turns must be one value"),
        ("[rollout.turns]\n", "[rollout] turns must be one value"),
        ("[rollout]\nturns = 2.5\n", "'2.5' is not a valid integer."),
        ("[rollout]\nturns = true\n", "'true' is not a valid integer."),
        ("[rollout]\njson = 3\n", "[rollout] json must be true or false"),
        ('[rollout]\nengine = "vlm"\n', "'vlm' is not one of"),
        ("[rollout]\nturns\n", "not valid TOML: "),
        (f"[rollout]\nturns = {'1' * 5000}\n", "not valid TOML: Exceeds the limit"),
        (f"[rollout]\nturns = {'[' * 5000}\n", "nested too deep: an option is a value or a list"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    config = tmp_path / "tito.toml"
    config.write_text(text)
    result = run("--config", str(config), "rollout")
    assert result.exit_code == BAD_INPUT
    assert f"{config}: " in result.stderr
    assert said in result.stderr


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert f"{missing}: cannot be read: No such file" in run("--config", str(missing), "rollout").stderr
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    result = run("--config", str(tmp_path / "binary.toml"), "rollout")
    assert result.exit_code == BAD_INPUT
    assert "not a UTF-8 text, at byte 0" in result.stderr


POSIX_ONLY = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
WINDOWS = f"""
import os, signal, sys
sys.modules |= dict.fromkeys({POSIX_ONLY!r})
del signal.pthread_sigmask, os.fork, os.killpg, os.getuid
"""
"""Takes away what Windows lacks. Files must name their encoding, which there is not UTF-8."""


@pytest.mark.whole
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--help",), "Commands:"),
        (("rollout", "--help"), "Exit status:"),
        (("rollout", "--turns", "2", "--calls", "calls.jsonl"), "sampled ids kept"),
    ],
)
def test_a_rollout_needs_nothing_that_windows_lacks(
    options: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    program = f"{WINDOWS}import tito_io; from tito_io.cli.main import main; main()"
    command = [sys.executable, "-X", "warn_default_encoding", "-W", "error::EncodingWarning", "-c", program]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, *options],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environ,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout
