"""A mark that an editor put before the first letter of a file is read as none."""

from __future__ import annotations

import gzip
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from tests.io.lint.lint_folders import NO_TOOLS, folder
from tito_io.cli.group import tito
from tito_io.samples.lines import lines


def run(*options: object) -> Result:
    return CliRunner().invoke(tito, [str(one) for one in options])


def samples(place: Path) -> Result:
    return run("samples", place / "calls.jsonl")


def audit(place: Path) -> Result:
    return run("audit", place / "calls.jsonl", "--family", place / "family", "--json")


def audit_with_tools(place: Path) -> Result:
    path, family = place / "calls.jsonl", place / "family"
    return run("audit", path, "--family", family, "--json", "--tools", place / "tools.json")


def rollout(place: Path) -> Result:
    return run("rollout", "--turns", "2", "--script", place / "script.jsonl")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("calls.jsonl", samples),
        ("calls.jsonl", audit),
        ("tools.json", audit_with_tools),
        ("script.jsonl", rollout),
    ],
)
def test_a_file_says_the_same_with_a_mark_before_it(
    place: Path, name: str, command: Callable[[Path], Result]
) -> None:
    content, plain = (place / name).read_bytes(), command(place)
    (place / name).write_bytes(BOM_UTF8 + content)
    try:
        marked = command(place)
    finally:
        (place / name).write_bytes(content)
    assert plain.stdout
    assert (marked.exit_code, marked.stdout, marked.stderr) == (plain.exit_code, plain.stdout, plain.stderr)


def test_a_mark_elsewhere_is_no_mark_and_places_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(gzip.compress(BOM_UTF8 + b"{}\n" + BOM_UTF8 + b"[]\n"))
    first, second = lines(path)
    assert (first.text, first.start, len(first.raw)) == (b"{}\n", 0, 6)
    assert (second.text, second.start, second.number) == (BOM_UTF8 + b"[]\n", 6, 2)


def test_a_mark_by_itself_is_a_blank_line(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(BOM_UTF8 + b"\n{}\n")
    assert [line.number for line in lines(tmp_path / "log.jsonl")] == [2]


@pytest.mark.whole
@pytest.mark.parametrize("bare", [False, True])
def test_a_template_s_mark_is_noted_since_engines_write_it(tmp_path: Path, *, bare: bool) -> None:
    model = folder(tmp_path / "model", NO_TOOLS)
    path = model / "chat_template.jinja"
    options = (path, "--tokenizer", model) if bare else (model,)
    (plain,) = orjson.loads(run("lint", *options, "--json").stdout)
    path.write_bytes(BOM_UTF8 + path.read_bytes())
    (marked,) = orjson.loads(run("lint", *options, "--json").stdout)
    assert plain["notes"] == []
    (note,) = marked["notes"]
    assert note.startswith("the template begins with a byte order mark, which engines write at the start of ")
