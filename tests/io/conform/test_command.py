"""The commands `tito vectors` and `tito conform`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tito_io.cli.group import tito
from tito_io.conform.vector import Vector, line

NAIVE = [sys.executable, "-m", "tito_io.conform.naive"]
CHOSEN = ("valid/chatml/question", "valid/chatml/result", "refused/window", "trap/odd-stop/end-of-text")


@pytest.fixture(scope="module")
def folder(vectors: dict[str, Vector], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write some vectors, few so that programs end soon."""
    made = tmp_path_factory.mktemp("vectors")
    for name in ("valid", "refused", "trap"):
        lines = [line(vectors[one]) for one in CHOSEN if one.startswith(name)]
        (made / f"{name}.jsonl").write_text("".join(lines))
    return made


@pytest.fixture(scope="module")
def refuses(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return a program that refuses everything."""
    script = tmp_path_factory.mktemp("program") / "refuses.py"
    script.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    print(json.dumps({'id': json.loads(line)['id'], 'refusal': '<b>no</b>'}), flush=True)\n"
    )
    return [sys.executable, "-S", str(script)]


def conform(*arguments: str) -> Result:
    return CliRunner().invoke(tito, ["conform", *arguments])


@pytest.mark.whole
def test_the_naive_program_fails_and_the_table_says_where(folder: Path) -> None:
    found = conform("--vectors", str(folder), "--differences", "--", *NAIVE)
    assert found.exit_code == 1
    assert "4 vectors of version 1: " in found.stdout
    assert "wrong        valid/chatml/question: earlier ids are changed: position 24 of 53" in found.stdout
    assert "wrong        refused/window: answered, and a refusal is required" in found.stdout
    assert "valid/chatml/result" not in found.stdout
    assert "265 'However'" in found.stdout


def test_refusals_can_be_accepted(folder: Path, refuses: list[str]) -> None:
    assert conform("--vectors", str(folder), "--", *refuses).exit_code == 1
    assert conform("--vectors", str(folder), "--accept", "over-refused", "--", *refuses).exit_code == 0
    assert conform("--vectors", str(folder), "--accept", "not-offered", "--", *refuses).exit_code == 1
    assert conform("--vectors", str(folder), "--only", "refused/", "--", *refuses).exit_code == 0


def test_json_has_every_verdict(folder: Path, refuses: list[str]) -> None:
    data = json.loads(conform("--vectors", str(folder), "--json", "--", *refuses).stdout)
    assert data["counts"]["valid"] == {
        "exact": 0, "refused": 0, "over-refused": 2, "not offered": 0, "wrong": 0, "error": 0,
        "not asked": 0,
    }  # fmt: skip
    assert {one["id"]: one["verdict"] for one in data["vectors"]} == {
        CHOSEN[0]: "over-refused",
        CHOSEN[1]: "over-refused",
        CHOSEN[2]: "refused",
        CHOSEN[3]: "refused",
    }


def test_a_page_is_complete_in_itself_and_escapes(folder: Path, refuses: list[str], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    found = conform("--vectors", str(folder), "--html", str(file), "--", *refuses)
    page = file.read_text()
    assert found.exit_code == 1
    assert found.stdout.startswith("4 vectors of version 1: ")
    assert "│ all     │" in found.stdout
    assert page.count("valid/chatml/question") == 2
    assert "&lt;b&gt;no" in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "no such", "--", "true"], "tito: --only no such: no vector's id has this text\n"),
        (
            ["--only", CHOSEN[0], "--", "no-such-program"],
            "tito: no-such-program: cannot be started: No such file",
        ),
        (
            ["--html", "/no/such/file", "--", "true"],
            "--html /no/such/file: give a file in a folder that exists",
        ),
        ([], "Missing argument"),
        (["python", "-m", "x"], "If it belongs to COMMAND, write -- before COMMAND."),
    ],
)
def test_what_cannot_be_run_ends_with_2(arguments: list[str], said: str) -> None:
    found = conform(*arguments)
    assert found.exit_code == 2
    assert said in found.stderr


def test_an_unknown_option_before_the_command_has_no_hint() -> None:
    found = conform("--no-such", "--", "true")
    assert found.exit_code == 2
    assert "No such option" in found.stderr
    assert "belongs to COMMAND" not in found.stderr


def test_vectors_are_written_as_lines(
    vectors: dict[str, Vector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tito_io.conform.vector.make_vectors", lambda: iter(vectors.values()))
    everything = CliRunner().invoke(tito, ["vectors"])
    assert everything.stdout == "".join(map(line, vectors.values()))
    found = CliRunner().invoke(tito, ["vectors", "-o", str(tmp_path / "v")])
    shown = found.stdout.splitlines()
    assert shown[0] == f"{tmp_path / 'v' / 'valid.jsonl'}: 113 vectors"
    assert {one.partition(":")[0] for one in shown} == {str(file) for file in (tmp_path / "v").iterdir()}
    files = [(tmp_path / "v" / f"{name}.jsonl").read_text() for name in ("valid", "refused", "trap")]
    assert "".join(files) == everything.stdout
    again = CliRunner().invoke(tito, ["vectors", "-o", str(tmp_path / "v")])
    assert (again.exit_code, again.stdout) == (0, found.stdout)


@pytest.mark.parametrize("name", ["README.md", "schema.json", "trap.jsonl"])
def test_a_file_of_somebody_else_is_not_replaced(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("# My project\n")
    found = CliRunner().invoke(tito, ["vectors", "-o", str(tmp_path)])
    assert found.exit_code == 2
    assert found.stderr.startswith(f"tito: {tmp_path / name}: `tito vectors` did not write this file")
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "# My project\n"


@pytest.mark.parametrize("command", [["vectors", "-o"], ["conform", "true", "--html"]])
def test_an_empty_output_is_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(tito, [*command, ""])
    assert found.exit_code == 2
    assert "the path is empty" in found.stderr
    assert list(tmp_path.iterdir()) == []
