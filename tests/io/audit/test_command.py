"""`tito audit`: what it prints where, and what its exit status says."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import datetime
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from tests.gguf_file import install_package, write_gguf
from tests.interrupts import interrupt, wait_for_input
from tests.io.audit.audited import KEEPING, family_folder, replace
from tests.io.families.family_folder import tiny_folder
from tests.io.families.gguf.test_family_of_gguf import SPACED
from tests.io.samples.terminal import on_terminal, tito
from tito_core import Step, render_key
from tito_core.drift.breaks import Cause
from tito_core.drift.tally import Tally
from tito_core.samples import StoredCall
from tito_io.audit.command import DRIFT, GROUPS, INCOMPLETE, STATUSES, audit
from tito_io.audit.rates import RATES, UNSEEN, figures
from tito_io.cli.errors import BAD_INPUT
from tito_io.cli.main import INTERRUPTED
from tito_io.families.family import Family
from tito_io.rollout.command import rollout
from tito_io.samples.forms.tito import write_calls
from tito_io.samples.line_groups import Group

HYPOTHETICAL = ("--fail-on", "hypothetical")


def run(path: Path, folder: Path, *options: str) -> Result:
    return CliRunner().invoke(audit, [str(path), "--family", str(folder), *options], env={"COLUMNS": "160"})


def refused(named: object, path: Path, folder: Path, *options: str) -> None:
    """Assert that the input is bad, and that the error names what is wrong with it."""
    result = run(path, folder, *options)
    assert result.exit_code == BAD_INPUT
    assert result.stderr.startswith("tito: ")
    assert str(named) in result.stderr
    assert "Traceback" not in result.output


def test_no_drift_is_0(tidy: Path, folder: Path) -> None:
    result = run(tidy, folder)
    assert result.exit_code == 0, result.output
    assert "no drift in 3 conversations, 18 prompts compared" in result.stdout
    assert result.stderr == ""


def test_breaks_that_did_not_happen_are_0_and_the_table_shows_both_sides(wild: Path, folder: Path) -> None:
    result = run(wild, folder, "--show", "2")
    assert result.exit_code == 0
    first, second, *_ = result.stdout.splitlines()
    assert first == "0 breaks in 3 conversations, 18 prompts compared;"
    assert second.endswith(" would have happened with a fresh render")
    assert "2 of " in result.stdout
    assert "retokenized" in result.stdout
    assert "the same text, other ids" in result.stdout
    assert "changed ids" in result.stdout
    assert "cached ids lost" in result.stdout
    assert "in prompts that were sent as ids" in result.stdout


def test_breaks_that_did_not_happen_may_be_1(wild: Path, folder: Path) -> None:
    assert run(wild, folder, *HYPOTHETICAL).exit_code == DRIFT


def test_the_embedded_engine_is_a_family_by_name(tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    CliRunner().invoke(rollout, ["--turns", "3", "--calls", str(calls), "--json"], catch_exceptions=False)
    result = run(calls, Path("embedded"))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("0 breaks in 1 conversation, ")


def test_an_installed_package_is_a_family_by_name(
    wild: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    write_gguf(install_package(tmp_path, "m.gguf") / "m.gguf", SPACED)
    assert "18 prompts compared" in run(wild, Path("tiny-model")).stdout
    refused("lost: neither a file nor an installed package", wild, Path("lost"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--date", "yesterday"), "'yesterday' is no time: give 2026-11-28 or 2026-11-28T12:00:00."),
        (("--tools", __file__), f"--tools {__file__}: is not valid JSON"),
    ],
)
def test_a_wrong_value_is_named_with_its_option(
    wild: Path, folder: Path, options: tuple[str, ...], said: str
) -> None:
    result = run(wild, folder, *options)
    assert result.exit_code == BAD_INPUT
    assert said in result.stderr


def test_errors_name_the_embedded_engine_and_not_its_folder(wild: Path) -> None:
    result = run(wild, Path("embedded"), "--template", "x")
    assert result.stderr == "tito: embedded: has no template x; it has default\n"


def test_calls_of_another_model_are_1_and_have_no_rates(wild: Path, tmp_path: Path) -> None:
    other_model, page = tiny_folder(tmp_path / "other", KEEPING), tmp_path / "page.html"
    result = run(wild, other_model, "--html", str(page))
    assert result.exit_code == DRIFT
    first, *rest = result.stdout.splitlines()
    assert first == "the first prompt is not this model's rendering: is --family the served model?"
    assert "changed ids" not in "".join(rest)
    assert "changed ids" not in page.read_text(encoding="utf-8")
    summary = json.loads(run(wild, other_model, "--json").stdout.splitlines()[-1])["summary"]
    assert summary["foreign_conversations"] == 3
    assert {summary[f"{key}_rate"] for key in RATES} == {None}


def test_no_break_is_asked_for_and_none_has_a_heading(wild: Path, folder: Path) -> None:
    none, one = run(wild, folder, "--show", "0"), run(wild, folder, "--show", "1")
    assert "the first of each cause" in one.stdout
    assert "the first of each cause" not in none.stdout
    assert "changed ids" in none.stdout


def test_lines_without_an_id_are_counted_and_said_once(tidy: Path, folder: Path, tmp_path: Path) -> None:
    *held, last = tidy.read_bytes().splitlines(keepends=True)
    path = tmp_path / "file.jsonl"
    path.write_bytes(b"".join([*held, last, *[last.replace(b'"conversation":', b'"other":')] * 3]))
    result = run(path, folder, "--id", "conversation")
    assert result.exit_code == INCOMPLETE
    assert "line 19: has no id at `conversation`, like 2 more lines" in result.stdout
    assert result.stdout.count("not audited:") == 1
    summary = json.loads(run(path, folder, "--id", "conversation", "--json").stdout)["summary"]
    assert summary["problems"] == 3


def test_json_is_an_object_a_break_and_then_the_summary(wild: Path, folder: Path) -> None:
    result = run(wild, folder, "--json", "--show", "0", *HYPOTHETICAL)
    *breaks, last = map(json.loads, result.stdout.splitlines())
    assert result.exit_code == DRIFT
    assert len(breaks) == last["summary"]["breaks"] > 3
    assert {one["cause"] for one in breaks} == {"retokenized"}
    for one in breaks:
        texts = ["".join(piece["text"] for piece in one[side]) for side in ("used", "rendered")]
        assert texts[0] == texts[1]
        assert [p["id"] for p in one["used"]] != [p["id"] for p in one["rendered"]]


def test_the_block_size_is_that_of_the_prefix_cache(wild: Path, folder: Path) -> None:
    fine, coarse = (
        json.loads(run(wild, folder, "--json", "--block-size", size).stdout.splitlines()[-1])["summary"]
        for size in ("1", "64")
    )
    assert fine["cached_ids"] > coarse["cached_ids"]
    assert coarse["cached_ids"] % 64 == 0


def test_a_page_is_written_whole_in_itself(wild: Path, folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(wild, folder, "--html", str(page)).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "wild.jsonl, rendered with family" in text


def test_what_could_not_be_compared_is_3_where_nothing_drifted(
    tidy: Path, wild: Path, folder: Path, tmp_path: Path
) -> None:
    for path, status in ((tidy, INCOMPLETE), (wild, DRIFT)):
        broken = tmp_path / path.name
        broken.write_bytes(path.read_bytes() + b"{no\n")
        result = run(broken, folder, *HYPOTHETICAL)
        assert result.exit_code == status
        assert "not audited: line 19: " in result.stdout


def test_a_prompt_that_the_template_refuses_is_not_compared(tidy: Path, tmp_path: Path) -> None:
    strict = replace(
        family_folder(tmp_path / "strict"),
        chat_template__jinja="{% if messages | length > 3 %}{{ raise_exception('too long') }}{% endif %}"
        + KEEPING,
    )
    result = run(tidy, strict)
    assert result.exit_code == INCOMPLETE
    assert (
        "not compared: 12 prompts that transformers 5.23 or the template refuses; the first is"
        in result.stdout
    )
    assert "too long" in result.stdout
    assert "0 of 3 restated turns" in result.stdout  # those that a compared prompt restates


def test_where_nothing_was_compared_there_is_no_verdict(folder: Path, tmp_path: Path) -> None:
    path, html = tmp_path / "empty.jsonl", tmp_path / "page.html"
    path.write_text('{"session_id": "a", "records": []}\n')
    result = run(path, folder, "--html", str(html))
    assert result.exit_code == INCOMPLETE
    assert "nothing could be compared: 0 conversations with 0 calls" in result.stdout
    assert "no drift" not in result.stdout
    assert "nothing could be compared" in html.read_text()
    assert "no drift" not in html.read_text()
    assert run(path, folder, "--json").exit_code == INCOMPLETE


def test_a_last_turn_may_be_lost_where_no_prompt_drifts(
    tidy: Path, wild: Path, folder: Path, tmp_path: Path
) -> None:
    """What later prompts restate is one base, what finished conversations hold another."""
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(wild.read_bytes().splitlines(keepends=True)[0])
    result = run(alone, folder)
    assert result.exit_code == 0
    assert "no drift in 1 conversation, 1 prompt compared" in result.stdout
    assert "(0 of 0 restated ids)" in result.stdout
    assert "ids lost to merging    100.0%" in result.stdout
    assert UNSEEN in result.stdout
    assert UNSEEN not in run(tidy, folder).stdout
    assert UNSEEN not in run(wild, folder).stdout


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--tools", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--template-arg", "thinking"], "give NAME=JSON"),
        (["--template-arg", "a-b=1"], "give NAME=JSON"),
        (
            ["--template-arg", "think=False"],
            """JSON writes think=false, the text False is think='"False"'""",
        ),
        (["--template-arg", "x=True"], "JSON writes x=true"),
        (["--template-arg", "x=None"], "JSON writes x=null"),
        (["--id", "nofield"], "no line has an id at `nofield`: give the name"),
        (
            ["--ray", "127.0.0.1:9"],
            "no Ray cluster at '127.0.0.1:9': cannot connect: Connection refused",
        ),
        (["--template", "nowhere.jinja"], "nowhere.jinja"),
        (["--from", "csv"], "there is no format 'csv': give one of tito, "),
        (["--html", "nowhere/page.html"], "cannot be written"),
    ],
)
def test_bad_options_are_2(
    tidy: Path,
    folder: Path,
    options: list[str],
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(complaint, tidy, folder, *options)


@pytest.mark.parametrize("content", ["{}", "[1]", "no"])
def test_tools_that_are_none_are_2(tidy: Path, folder: Path, content: str, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(content)
    refused(tmp_path / "tools.json", tidy, folder, "--tools", str(tmp_path / "tools.json"))


@pytest.mark.parametrize("content", [None, b"", b"{}\n", b"\x00\x01\x02"])
def test_a_file_that_is_none_of_ours_is_2(folder: Path, content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    if content is not None:
        path.write_bytes(content)
    refused(path, path, folder)


def test_a_family_that_is_none_is_2(tidy: Path, tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", tidy, tmp_path / "nowhere")


def _dated(path: Path, folder: Path, key: str | None) -> Path:
    """Store a call whose prompt has a date, a mode and a tool's name."""
    messages = [{"role": "user", "content": "hi"}]
    fn = Family.load(folder, clock=_noon).tokenize_fn(tools=[{"name": "f"}], mode="fast")
    ids = fn(messages, add_generation_prompt=True)
    said = [{"role": "assistant", "content": "yes"}]
    step = Step(prompt=messages, completion=said, prompt_ids=ids, completion_ids=[5], key=key)
    with path.open("wb") as file:
        write_calls(file, "c", [StoredCall(name="a", step=step)])
    return path


def _noon() -> datetime:
    return datetime(2026, 1, 1)  # noqa: DTZ001  # templates print the wall clock, which has no zone


@pytest.mark.parametrize("key", [None, render_key([{"name": "f"}], {"mode": "fast"})])
def test_date_tools_and_arguments_are_those_of_the_run(tmp_path: Path, key: str | None) -> None:
    template = (
        "{{ strftime_now('%Y') }}{{ mode | default('none') }}{{ tools | tojson if tools else '' }}" + KEEPING
    )
    folder = replace(family_folder(tmp_path / "family"), chat_template__jinja=template)
    path = _dated(tmp_path / "file.jsonl", folder, key)
    (tmp_path / "tools.json").write_text('[{"name": "f"}]')
    given = ["--tools", str(tmp_path / "tools.json"), "--template-arg", "mode=fast", *HYPOTHETICAL]
    assert run(path, folder, *given, "--date", "2026-05-05").exit_code == 0
    assert run(path, folder, *given, "--date", "2025-05-05").exit_code == DRIFT
    status = run(path, folder, "--date", "2026-05-05", *HYPOTHETICAL).exit_code
    assert status == (DRIFT if key is None else 0)
    result = run(path, folder, *given, "--date", "2025-05-05", "--json")
    assert json.loads(result.stdout.splitlines()[0])["cause"] == "rendering"
    assert "is this the served model's folder" in run(path, folder, "--date", "2025-05-05").stdout


def test_help_documents_statuses_and_causes_in_their_order() -> None:
    result = CliRunner().invoke(audit, ["--help"])
    assert result.exit_code == 0
    assert "no break: every prompt" in result.output
    assert "  130  interrupted; standard error says how far" in result.output
    legends = [STATUSES.index(f"\n  {one.name} ") for one in figures(Tally())]
    assert legends == sorted(legends)
    places = [STATUSES.index(f"\n  {cause.name.lower()} ") for cause in Cause]
    assert places == sorted(places)


def test_a_compressed_file_is_not_for_a_cluster(folder: Path, tmp_path: Path) -> None:
    refused("decompress", tmp_path / "file.jsonl.gz", folder, "--ray", "local")


def test_the_figures_have_one_name_in_table_json_and_help(wild: Path, folder: Path) -> None:
    """Labels are the keys with spaces, and the rates have the suffix `_rate`."""
    shown = run(wild, folder, "--show", "0").stdout
    summary = json.loads(run(wild, folder, "--json").stdout.splitlines()[-1])["summary"]
    assert {one.name for one in attrs.fields(Tally)} < summary.keys()
    for name, (whole, _) in RATES.items():
        assert f"{name.replace('_', ' ')} " in shown
        assert f"({summary[name]:,} of {summary[whole]:,} {whole.replace('_', ' ')})" in shown
        assert summary[f"{name}_rate"] == summary[name] / summary[whole]


def test_the_choices_of_group_are_those_of_the_reader() -> None:
    assert {one.name.lower(): one.value for one in Group} == GROUPS


def test_json_stays_on_standard_output_while_progress_is_drawn(wild: Path, folder: Path) -> None:
    command = tito("audit", str(wild), "--family", str(folder), "--json")
    printed, shown = on_terminal(command)
    assert "summary" in [json.loads(line) for line in printed.splitlines()][-1]
    assert b"wild.jsonl" in shown
    assert b"retokenized" not in shown
    _, both = on_terminal(command, stdout=True)
    assert b"\x1b" not in both


def test_an_interrupted_audit_says_what_was_done(wild: Path, folder: Path) -> None:
    pipe = subprocess.PIPE
    command = tito("audit", "-", "--family", str(folder))
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(wild.read_bytes())
        process.stdin.flush()
        wait_for_input(process, process.stdin)  # the pipe stays open: the run waits for more lines
        printed, errors = interrupt(process)
    assert (process.returncode, printed) == (INTERRUPTED, b"")
    done, interrupted = errors.decode().splitlines()
    assert interrupted == "tito: interrupted"
    assert re.fullmatch(r"tito: /dev/stdin: .* read: 2 conversations audited, \d+ breaks found", done)


def test_a_gguf_file_renders_the_messages(tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    calls.write_text('{"session_id": "a", "records": []}\n')
    result = run(calls, write_gguf(tmp_path / "m.gguf", SPACED))
    assert "nothing could be compared: 0 conversations" in result.stdout
