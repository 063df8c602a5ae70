"""`tito samples`: what it prints where, and what its exit status says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from click.testing import CliRunner, Result

from tests.core.samples.calls import call
from tests.io.samples.row_files import from_lines, from_parquet, from_tensors
from tests.io.samples.sample_files import chat, content_of, dumped, examples, own, put, read, without_reason
from tito_core import InputError
from tito_core.samples import Cut, Forest, MissingRow, Owner, Retries, RowPer, SampleOptions, TurnRule
from tito_core.samples.rows import make_rows as kernel
from tito_io.cli.errors import BAD_INPUT
from tito_io.cli.group import tito
from tito_io.extras import install
from tito_io.samples import command
from tito_io.samples.command import samples
from tito_io.samples.rows import to_rows

pq: Any = import_module("pyarrow.parquet")
CALLS = [
    call("a", [1], [2, 3], reward=1.0),
    call("b", [1, 2, 3, 4], [5], truncated=True, finish_reason="length", order=1),
    call("c", [1, 2, 3, 6], [7, 8], order=2),
    call("d", [1, 2, 3, 6], [7, 9], order=3),
]
FOREST = Forest.of(CALLS)


def run(path: Path, *options: str) -> Result:
    return CliRunner().invoke(samples, [str(path), *options])


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return put(tmp_path, own("c", CALLS))


def shown(line: str, path: Path) -> Any:
    """Return a line of standard error with single spaces; a summary as JSON has it."""
    told = " ".join(without_reason(line).replace(str(path), "PATH").split())
    return json.loads(told) if told.startswith("{") else told


@pytest.mark.parametrize("example", examples("commands.jsonl"), ids=lambda one: one["rule"])
def test_a_file_is_told_of_as_its_example_says(tmp_path: Path, example: dict[str, Any]) -> None:
    """An example has the file, the options, and what is printed of rows and on standard error."""
    path = put(tmp_path, content_of(example))
    result = run(path, *example["options"])
    names = ("conversation", "name", "reward")
    printed = [{name: row[name] for name in names if name in row} for row in rows(result)]
    told = [shown(line, path) for line in result.stderr.splitlines() if line.strip()]
    assert (result.exit_code, printed, told) == (example["exit"], example["rows"], example["stderr"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("rows.csv", "name a file that ends in .jsonl, .parquet, .safetensors"),
        ("/no/rows.jsonl", "cannot write /no/rows.jsonl"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_clear_line(log: Path, name: str, told: str) -> None:
    result = run(log, "--output", name)
    assert (result.exit_code, result.stdout) == (BAD_INPUT, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("tito: ")
    assert told in line


def test_the_help_explains_choices_and_exit_statuses() -> None:
    text = CliRunner().invoke(samples, ["--help"]).stdout
    assert CliRunner().invoke(samples, ["-h"]).stdout == text
    assert "Exit status:\n    0    every line was read" in text
    assert "  130  interrupted; standard error says how far" in text
    assert "drop: drop them" in " ".join(text.split())
    assert "all: every one" in " ".join(text.split())


@pytest.mark.parametrize("to_file", [True, False])
def test_an_interrupt_says_where_the_rows_are(
    log: Path, to_file: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> Iterator[Any]:
        yield from to_rows(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "to_rows", interrupted)
    output = log.with_name("rows.jsonl")
    done = run(log, *(["--output", str(output)] if to_file else []))
    where = f"made; {output} was not written" if to_file else "printed"
    assert f" read (100%): 1 conversation, 3 rows {where}\n" in done.stderr
    assert not output.exists()


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_calls_are_read_from_standard_input(name: str, log: Path) -> None:
    command = [sys.executable, "-m", "tito_io", "samples", name, "--json"]
    done = subprocess.run(command, input=log.read_bytes(), capture_output=True, check=False)
    assert done.returncode == 0
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["b", "c", "d"]
    assert json.loads(done.stderr)["conversations"] == 1


@pytest.mark.parametrize(
    "options", [["samples", "LOG", "--json"], ["samples", "LOG", "--json", "--format", "tito"], ["rollout"]]
)
def test_nothing_is_counted_that_could_not_be_printed(log: Path, options: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "tito_io", *(str(log) if one == "LOG" else one for one in options)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    told = "tito: standard output: No space left on device; the rest of the output is lost\n"
    assert (done.returncode, done.stderr) == (2, told)


@pytest.mark.parametrize("options", [[], ["--format", "tito"]])
def test_what_is_printed_comes_before_the_summary(log: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "tito_io", "samples", str(log), "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    *printed, summary = map(json.loads, done.stdout.splitlines())
    assert (len(printed), summary["conversations"]) == (4 if options else 3, 1)


@pytest.mark.parametrize(
    ("name", "read"),
    [("r.jsonl", from_lines), ("r.parquet", from_parquet), ("r.safetensors", from_tensors)],
)
def test_rows_go_to_the_kind_of_file_that_its_name_says(
    log: Path, tmp_path: Path, name: str, read: Any
) -> None:
    result = run(log, "--output", str(tmp_path / name), "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["rows"] == 3
    assert result.stderr == ""
    entries = list(read(tmp_path / name))
    assert tuple(entry.row for entry in entries) == kernel(FOREST).rows
    assert {(entry.conversation, entry.line) for entry in entries} == {("c", 1)}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (("--rows", "call"), SampleOptions(rows=RowPer.CALL)),
        (("--owner", "last"), SampleOptions(owner=Owner.LAST)),
        (("--max-length", "4"), SampleOptions(max_length=4)),
        (("--max-length", "5", "--cut", "inside"), SampleOptions(max_length=5, cut=Cut.INSIDE)),
        (("--truncated", "drop"), SampleOptions(truncated=TurnRule.DROP)),
        (("--retries", "newest"), SampleOptions(retries=Retries.NEWEST)),
        (("--missing-row", "pad"), SampleOptions(missing_row=MissingRow.PAD)),
    ],
)
def test_options_are_the_kernels(log: Path, tmp_path: Path, options: Any, chosen: SampleOptions) -> None:
    result = run(log, *options, "-o", str(tmp_path / "r.jsonl"), "--json")
    made, summary = kernel(FOREST, chosen), json.loads(result.stdout)
    assert tuple(entry.row for entry in from_lines(tmp_path / "r.jsonl")) == made.rows
    assert summary["trained_ids"] + sum(summary["untrained_ids"].values()) == summary["sampled_ids"] == 7
    counts = Counter[str]()
    for one in made.untrained:
        counts[one.why.name.lower()] += one.stop - one.start
    assert summary["untrained_ids"] == counts
    assert summary["leaves_without_row"] == len(made.without_row)


def test_every_option_of_the_kernel_and_every_choice_has_its_name_and_help() -> None:
    parameters = {parameter.name: parameter for parameter in samples.params}
    text = " ".join(CliRunner().invoke(samples, ["--help"]).stdout.split())
    for field in attrs.fields(SampleOptions):
        kind = type(field.default)
        for member in getattr(kind, "__members__", {}).values():
            assert member.name.lower() in parameters[field.name].type.choices  # type: ignore[attr-defined]  # they are choices
            assert member.value.split("(")[0].split()[0] in text
    every = {"rows": "call", "owner": "longest", "max_length": 5, "cut": "inside"}
    every |= {"rewards": "discounted", "discount": 0.5}
    every |= {"conversation": "tree", "truncated": "end", "aborted": "mask", "empty": "keep"}
    every |= {"retries": "extended", "auxiliary": "drop"}
    made = command.kernel_options({**every, "missing_row": "repeat"})
    assert all(getattr(made, field.name) != field.default for field in attrs.fields(SampleOptions))


def test_options_that_are_not_given_have_these_values() -> None:
    assert samples.make_context("samples", ["x.jsonl"]).params == {
        "file": Path("x.jsonl"),
        "output": None,
        "form": None,
        "group": "id",
        "id_field": None,
        "max_line": 1 << 28,
        "columns": "tito",
        "target": None,
        "expand": False,
        "redact": None,
        "ray": None,
        "as_json": False,
        "rows": "leaf",
        "owner": "first",
        "max_length": None,
        "cut": "at_turn",
        "rewards": "broadcast",
        "discount": None,
        "conversation": "forest",
        "truncated": "keep",
        "aborted": "keep",
        "empty": "drop",
        "retries": "all",
        "auxiliary": "keep",
        "missing_row": "shorter",
    }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--rewards", "discounted"), "--rewards discounted needs --discount: give a factor from 0 to 1"),
        (("--cut", "inside"), "--cut has an effect with --max-length alone"),
        (("--discount", "0.5"), "--discount has an effect with --rewards discounted alone"),
        (("--rewards", "discounted", "--discount", "nan"), "nan is not a finite number"),
        (("--rewards", "discounted", "--discount", "2"), "2.0 is not in the range 0<=x<=1"),
        (("--rewards", "discounted", "--discount", "x"), "'x' is not a valid number"),
        (("--max-length", "0"), "Invalid value for '--max-length': 0 is not in the range x>=1"),
    ],
)
def test_an_option_has_a_value_that_makes_sense(log: Path, arguments: tuple[str, ...], error: str) -> None:
    result = run(log, *arguments)
    assert result.exit_code == BAD_INPUT
    assert error in " ".join(result.stderr.split())


def test_what_is_no_file_is_one_clear_line(tmp_path: Path) -> None:
    for path, told in ((tmp_path, "is a folder"), (tmp_path / "no", "cannot read")):
        result = run(path)
        assert (result.exit_code, len(result.stderr.splitlines())) == (BAD_INPUT, 1)
        assert told in result.stderr


def test_ray_that_is_missing_is_one_clear_line(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    result = run(log, "--ray", "local")
    assert result.exit_code == BAD_INPUT
    assert result.stderr == f"tito: a cluster needs Ray: {install('ray')}\n"


def test_a_compressed_file_goes_to_no_cluster(tmp_path: Path) -> None:
    result = run(put(tmp_path, b"", "log.jsonl.gz"), "--ray", "local")
    assert "is compressed, and a cluster reads parts of a file" in result.stderr


def test_options_raise_what_the_kernel_raises() -> None:
    given = {field.name: field.default.name.lower() for field in attrs.fields(SampleOptions) if field.default}
    with pytest.raises(InputError, match="max_length is -1"):
        command.kernel_options({**given, "max_length": -1})


def test_a_rollout_writes_calls_that_become_rows(tmp_path: Path) -> None:
    """What `tito rollout --calls` writes is what `tito samples` reads, ids and all."""
    path = tmp_path / "calls.jsonl"
    done = CliRunner().invoke(tito, ["rollout", "--turns", "5", "--json", "--calls", str(path)])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.splitlines()[-1])["summary"]
    (stored,), _ = read(path)
    assert [(one.name, one.order) for one in stored.forest.calls] == [(f"turn-{n}", n) for n in range(1, 6)]
    assert {call.finish_reason for call in stored.forest.calls} <= {"stop", "length", "tool_calls"}
    made = CliRunner().invoke(tito, ["samples", str(path)])
    assert made.exit_code == 0, made.output
    rows = [json.loads(line) for line in made.stdout.splitlines()]
    assert len(path.read_bytes().splitlines()) == 5
    assert sum(sum(row["loss_mask"]) for row in rows) == summary["sampled_ids"]


def test_calls_that_cannot_be_written_are_bad_input(tmp_path: Path) -> None:
    done = CliRunner().invoke(tito, ["rollout", "--turns", "1", "--calls", str(tmp_path / "no" / "calls")])
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


def test_rows_do_not_replace_what_they_are_made_of(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    assert CliRunner().invoke(tito, ["rollout", "--turns", "2", "--calls", str(path)]).exit_code == 0
    before = path.read_bytes()
    done = CliRunner().invoke(tito, ["samples", str(path), "-o", str(path)])
    assert (done.exit_code, path.read_bytes()) == (2, before)
    assert "is the file that is read" in done.stderr


def test_files_of_rollouts_may_be_joined(tmp_path: Path) -> None:
    """Each rollout is a conversation of its own, whatever its turns are called."""
    files = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for seed, path in enumerate(files):
        done = CliRunner().invoke(
            tito, ["rollout", "--turns", "2", "--seed", str(seed), "--calls", str(path)]
        )
        assert done.exit_code == 0
    both = tmp_path / "both.jsonl"
    both.write_bytes(b"".join(path.read_bytes() for path in files))
    done = CliRunner().invoke(tito, ["samples", str(both), "-o", str(tmp_path / "rows.jsonl")])
    assert done.exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_bytes().splitlines()]
    assert len({row["conversation"] for row in rows}) == len(files)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".safetensors"])
def test_where_no_row_comes_the_rows_that_were_there_stay(tmp_path: Path, suffix: str) -> None:
    path, rows = tmp_path / "calls.jsonl", tmp_path / f"rows{suffix}"
    CliRunner().invoke(tito, ["rollout", "--turns", "2", "--calls", str(path)])
    CliRunner().invoke(tito, ["samples", str(path), "-o", str(rows)])
    before = rows.read_bytes()
    done = CliRunner().invoke(tito, ["samples", str(path), "--max-length", "1", "-o", str(rows)])
    assert (done.exit_code, rows.read_bytes()) == (1, before)


@pytest.mark.parametrize("options", [[], ["--format", "atif"]])
@pytest.mark.parametrize("data", [b"no\n[1]\n", dumped(chat("a", [1], [2]) | {"response": {"choices": []}})])
@pytest.mark.parametrize("before", [{}, {"out.jsonl": b"old"}])
def test_where_no_line_can_be_read_no_file_is_written(
    tmp_path: Path, options: list[str], data: bytes, before: dict[str, bytes]
) -> None:
    files = {"log.jsonl": data, **before}
    for name, content in files.items():
        put(tmp_path, content, name)
    done = run(tmp_path / "log.jsonl", "-o", str(tmp_path / "out.jsonl"), *options)
    assert done.exit_code != 0
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == files


@pytest.mark.parametrize("form", ["atif", "harbor", "tito"])
def test_conversations_are_written_to_a_file_in_another_format(log: Path, tmp_path: Path, form: str) -> None:
    target = tmp_path / f"{form}.jsonl"
    done, printed = (
        run(log, "--format", form, "-o", str(target), "--json"),
        run(log, "--format", form, "--json"),
    )
    assert (done.exit_code, done.stdout, target.read_text()) == (0, printed.stderr, printed.stdout)
    names = ("name", "ids", "loss_mask", "logprobs", "spans", "turns", "reward", "weight", "metadata")
    again, first = ([[row[name] for name in names] for row in rows(run(path))] for path in (target, log))
    assert again == first


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--format", "atif", "--rows", "call"], "--rows has no effect with --format atif"),
        (["--format", "atif", "--columns", "trl"], "--columns has no effect with --format atif"),
        (["--format", "atif", "--ray", "local"], "--ray has no effect with --format atif"),
        (["--format", "harbor", "--expand"], "--expand has no effect here: it belongs to --format atif"),
        (["--expand"], "--expand has no effect here"),
        (["--format", "atif", "-o", "a.parquet"], "name a file that ends in .jsonl"),
        (["--columns", "trl", "-o", "a.safetensors"], "name a file that ends in .jsonl or .parquet"),
    ],
)
def test_an_option_without_effect_is_refused(log: Path, options: list[str], reason: str) -> None:
    result = run(log, *options)
    assert result.exit_code == BAD_INPUT
    assert reason in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_have_the_columns_of_a_trainer(suffix: str, tmp_path: Path) -> None:
    log = put(tmp_path, dumped(chat("a", [1, 2], [3, 4])))
    found = {}
    for columns in ("trl", "verl"):
        target = tmp_path / f"{columns}{suffix}"
        assert run(log, "--columns", columns, "-o", str(target)).exit_code == 0
        (found[columns],) = pq.read_table(target).to_pylist() if suffix == ".parquet" else lines_of(target)
    common = {
        "conversation": "log",
        "group": None,
        "agent": "main",
        "name": "a",
        "reward": None,
        "weight": 1.0,
    }
    assert found["trl"] == common | {
        "input_ids": [1, 2, 3, 4],
        "labels": [-100, -100, 3, 4],
        "attention_mask": [1, 1, 1, 1],
        "completion_mask": [0, 0, 1, 1],
    }
    assert found["verl"] == common | {
        "processed_logprobs": False,
        "prompts": [1, 2],
        "responses": [3, 4],
        "response_mask": [1, 1],
        "rollout_log_probs": [-0.5, -1.5],
        "input_ids": [1, 2, 3, 4],
        "attention_mask": [1, 1, 1, 1],
    }


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_batch_has_no_log_probabilities_where_a_trained_id_has_none(log: Path) -> None:
    first, *_ = rows(run(log, "--columns", "verl"))
    assert first["rollout_log_probs"] is None
    assert (first["prompts"], first["responses"], first["response_mask"]) == ([1], [2, 3, 4, 5], [1, 1, 0, 1])


def test_prompts_are_written_whole_where_that_is_asked_for(log: Path) -> None:
    for options, whole in (([], [True, False]), (["--expand"], [True, True])):
        done = run(log, "--format", "atif", *options)
        assert done.exit_code == 0, done.stderr
        first, *_ = map(json.loads, done.stdout.splitlines())
        steps = [step["metrics"] for step in first["steps"] if "metrics" in step]
        assert ["prompt_token_ids" in metrics for metrics in steps] == whole
    assert "it belongs to --format atif" in run(log, "--format", "tito", "--expand").stderr
    assert "it belongs to --format atif" in run(log, "--expand").stderr


@pytest.mark.parametrize("flag", ["--from", "--group", "--columns", "--format", "--rows", "--owner", "--cut"])
def test_a_choice_is_one_of_those_that_the_help_lists(log: Path, flag: str) -> None:
    (option,) = (one for one in samples.params if flag in one.opts)
    assert isinstance(option.type, click.Choice)
    done = run(log, flag, "nosuch")
    assert done.exit_code == BAD_INPUT
    assert f"Invalid value for '{flag}'" in done.output
    assert "'nosuch' is not one of " in done.output
    assert all(f"'{choice}'" in done.output for choice in option.type.choices)
