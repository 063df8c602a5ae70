"""`tito lint`: paths in, reports out, and an exit status that says what became of them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.gguf_file import install_package, metadata_of, write_gguf
from tests.io.audit.test_page import ParsedPage
from tests.io.families.family_folder import CONFIG, write
from tests.io.lint.lint_folders import EXACT, NO_TOOLS, START, STRIPS, folder
from tito_io.cli.errors import BAD_INPUT
from tito_io.cli.main import INTERRUPTED
from tito_io.families.family import Family
from tito_io.lint.command import REFUSED, lint
from tito_io.lint.subject import SubjectOptions, subjects

COMMAND = "import sys; sys.argv.insert(1, 'lint'); from tito_io.cli.main import main; main()"


def run(*options: object) -> Result:
    return CliRunner().invoke(lint, [str(option) for option in options])


def objects(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def complaint(result: Result) -> str:
    """Return the one line of an error, nothing being printed beside it."""
    (line,) = result.stderr.splitlines()
    assert line.startswith("tito: ")
    assert result.exit_code == BAD_INPUT
    return line


def test_exact_exits_with_nothing_to_complain_of(tmp_path: Path) -> None:
    result = run(folder(tmp_path / "exact", STRIPS), "--json")
    (one,) = objects(result)
    assert (result.exit_code, result.stderr) == (0, "")
    assert {case["verdict"] for case in one["cases"]} == {"exact"}
    for case in one["cases"]:
        assert case["history_rewritten"] == (case["first_divergence"] is not None)
        assert case["reason"] is None


def test_json_has_the_promised_fields(tmp_path: Path) -> None:
    made = folder(tmp_path / "strips", STRIPS)
    (one,) = objects(run(made, "--json"))
    assert (one["path"], one["template"]) == (str(made), "default")
    assert one["suffix_text"] == "<|im_end|>\n"
    assert one["suffix"][:1] == one["stop_ids"]
    assert {"path", "template", "suffix", "stop_ids", "cases", "advice", "renderings", "error"} <= one.keys()
    wanted = {"shape", "after", "verdict", "history_rewritten", "reason", "first_divergence", "rendering"}
    assert all(wanted <= case.keys() for case in one["cases"])
    (case,) = [case for case in one["cases"] if (case["shape"], case["after"]) == (["user"], "reasoning")]
    where = case["first_divergence"]
    assert where["used"][0]["text"] == "<think>"
    assert where["before"][-1]["text"] == "\n"
    assert where["at"] > len(where["before"])


def test_a_refusal_exits_with_one_unless_it_is_accepted(tmp_path: Path) -> None:
    made = folder(tmp_path / "no_tools", NO_TOOLS)
    assert run(made).exit_code == REFUSED
    assert run(made, "--accept", "TEMPLATE_REFUSED").exit_code == 0
    assert run(made, "--accept", "ODD_STOP").exit_code == REFUSED


def test_a_person_reads_the_table_the_seam_the_divergence_and_the_advice(tmp_path: Path) -> None:
    result = run(folder(tmp_path / "strips", STRIPS))
    text = result.stdout
    assert "after plain" in text
    assert re.search(r"a user message +exact +kept", text)
    assert "user after a turn: sampled | <|im_end|>\\n | <|im_start|>user\\n | ...text..." in text
    assert "in use" in text
    assert "rendered" in text
    assert "* A user message after a reasoning turn" in text
    assert result.stderr == ""


def test_every_template_of_a_folder_is_linted(tmp_path: Path) -> None:
    named = {
        "additional_chat_templates/tool_use.jinja": NO_TOOLS,
        "chat_template.old.jinja": STRIPS,
    }
    made = write(folder(tmp_path / "several", EXACT), named)
    found = objects(run(made, "--json"))
    assert [one["template"] for one in found] == ["default", "tool_use", "chat_template.old.jinja"]
    (one,) = objects(run(made, "--json", "--template", "tool_use"))
    assert one["template"] == "tool_use"
    config = {
        **CONFIG,
        "chat_template": [{"name": "a", "template": EXACT}, {"name": "b", "template": STRIPS}],
    }
    listed = folder(tmp_path / "listed", None, tokenizer_config__json=config)
    assert [one["template"] for one in objects(run(listed, "--json"))] == ["a", "b"]


def test_a_template_by_itself_takes_a_vocabulary(tmp_path: Path) -> None:
    made = folder(tmp_path / "model", EXACT)
    bare = write(tmp_path, {"mine.jinja": EXACT.replace("<|im_start|>", "<|turn|>")}) / "mine.jinja"
    (one,) = objects(run(bare, "--tokenizer", made, "--json"))
    assert one["template"] == "mine.jinja"
    assert {case["verdict"] for case in one["cases"]} == {"exact"}
    assert one["notes"] == [
        "the vocabulary lacks <|turn|>: added as special tokens, with ids that the model does not have"
    ]
    assert "add --tokenizer MODEL" in complaint(run(bare))


def test_templates_share_the_tokenizer_of_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = folder(tmp_path / "model", EXACT), folder(tmp_path / "other", EXACT)
    texts = {f"{name}.jinja": EXACT.replace("<|im_start|>", f"<|{name}|>") for name in "abcdefg"}
    files = [write(tmp_path, texts) / name for name in (*texts, "a.jinja")]
    loads: list[Path] = []
    load = Family.load

    def counted(path: Path, **options: Any) -> Family:
        loads.append(path)
        return load(path, **options)

    def loaded(path: Path, options: SubjectOptions) -> tuple[str, dict[str, int], tuple[str, ...]]:
        loaded = next(subjects(str(path), options)).load()
        family, notes = loaded.family, loaded.notes
        vocabulary = family.tokenizer.get_vocab(with_added_tokens=True)
        return family.templates["default"].source.text, vocabulary, notes

    monkeypatch.setattr(Family, "load", counted)
    shared = SubjectOptions(tokenizer=made)
    found = [loaded(file, shared) for file in files]
    assert loads == [made]
    assert found == [loaded(file, SubjectOptions(tokenizer=made)) for file in files]
    assert [name for _, vocabulary, _ in found for name in ("<|a|>", "<|b|>") if name in vocabulary] == [
        "<|a|>",
        "<|b|>",
        "<|a|>",
    ]
    loads.clear()
    for path in (made, other, made):
        loaded(path, shared)
    assert loads == [other, made]


def test_template_arguments_reach_the_template(tmp_path: Path) -> None:
    made = folder(tmp_path / "loud", EXACT + "{% if loud == 7 %}{{ raise_exception('too loud') }}{% endif %}")
    assert "too loud" in complaint(run(made, "--arg", "loud=7"))
    assert run(made, "--arg", "loud=seven").exit_code == 0
    assert "give NAME=JSON" in complaint(run(made, "--arg", "loud"))


def test_stop_ids_are_given_by_hand(tmp_path: Path) -> None:
    made = folder(tmp_path / "stops", EXACT, stop=None)
    (one,) = objects(run(made, "--stop-id", "<|im_end|>", "--stop-id", START, "--json"))
    assert one["stop_ids"][1] == START
    assert "--stop-id nope: is neither" in complaint(run(made, "--stop-id", "nope"))


@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_paths_each_give_one_line(tmp_path: Path, *, as_json: bool) -> None:
    options = ["--json"] * as_json
    no_template = folder(tmp_path / "no_template", None)
    no_tokenizer = write(tmp_path / "no_tokenizer", {"chat_template.jinja": EXACT})
    broken = folder(tmp_path / "broken", EXACT, tokenizer_config__json="{")
    empty = folder(tmp_path / "empty", " ")
    other = write(tmp_path, {"notes.txt": "x"}) / "notes.txt"
    for path, told in (
        (tmp_path / "none", "there is no such file or folder; give a .jinja file, a model on the hub"),
        (tmp_path / "none.jinja", "add --tokenizer"),
        (no_template, "has no chat template"),
        (no_tokenizer, "tokenizer.json: is missing"),
        (broken, "not valid JSON"),
        (empty, "is empty"),
        (other, "is not a GGUF file"),
    ):
        result = run(path, *options)
        line = complaint(result)
        assert told in line
        assert str(path) in line
        assert not as_json or [one["error"] is not None for one in objects(result)] == [True]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a package with a GGUF file, and return its name."""
    monkeypatch.syspath_prepend(tmp_path)
    read = metadata_of(folder(tmp_path / "source", EXACT), "llama-bpe")
    write_gguf(install_package(tmp_path, "m.gguf") / "m.gguf", {**read, "tokenizer.chat_template": EXACT})
    return "tiny-model"


@pytest.mark.parametrize("kind", ["folder", "file", "package", "embedded"])
def test_every_kind_of_model_is_linted(tmp_path: Path, package: str, kind: str) -> None:
    made = folder(tmp_path / "model", EXACT)
    named = {"folder": made, "file": tmp_path / "tiny_model" / "m.gguf", "package": package}
    report, *_ = objects(run(named.get(kind, kind), "--json"))
    assert (report["error"], report["template"]) == (None, "default")


def test_every_kind_of_model_lends_its_tokenizer(tmp_path: Path, package: str) -> None:
    template = write(tmp_path, {"a.jinja": EXACT}) / "a.jinja"
    for name in (package, "embedded"):
        assert objects(run(template, "--json", "--tokenizer", name))[0]["error"] is None


def test_a_template_file_that_is_not_there(tmp_path: Path) -> None:
    made = folder(tmp_path / "model", EXACT)
    assert "there is no such file" in complaint(run(tmp_path / "none.jinja", "--tokenizer", made))
    assert "x: neither a file nor an installed package" in complaint(
        run(write(tmp_path, {"a.jinja": EXACT}) / "a.jinja", "--tokenizer", "x")
    )


def test_a_tokenizer_that_no_template_needs_is_not_ignored(tmp_path: Path) -> None:
    made = folder(tmp_path / "model", EXACT)
    for paths in ((made,), (made, "org/on-the-hub")):
        line = complaint(run(*paths, "--tokenizer", made))
        assert f"--tokenizer {made} has no effect: no PATH is a .jinja file" in line
    file = write(tmp_path, {"a.jinja": EXACT}) / "a.jinja"
    assert len(objects(run(made, file, "--tokenizer", made, "--json"))) == 2


def hub(monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> list[str]:
    """Put a hub in place that answers so; return what it is asked for."""
    asked: list[str] = []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append(name)
        assert "*.safetensors" not in allow_patterns
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    module = ModuleType("huggingface_hub")
    module.__dict__["snapshot_download"] = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return asked


def test_a_model_on_the_hub_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch, folder(tmp_path / "cached", EXACT))
    (one,) = objects(run("someone/model", "--json"))
    assert asked == ["someone/model"]
    assert one["path"] == "someone/model"
    assert one["cases"]


def test_what_ails_every_template_of_a_folder_is_told_once(tmp_path: Path) -> None:
    made = folder(tmp_path / "model", EXACT)
    write(made, {"other.jinja": EXACT, "tokenizer.json": ""})
    result = run(made, "--json")
    assert f"{made}/tokenizer.json: not a tokenizer file" in complaint(result)
    assert len({one["error"] for one in objects(result)}) == 1
    assert len(objects(result)) == 2


def test_a_template_by_itself_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder(tmp_path / "model", EXACT)
    write(tmp_path, {"a.jinja": "", "b.jinja": "{{ raise_exception('never') }}"})
    monkeypatch.chdir(tmp_path)
    assert (
        complaint(run("a.jinja", "--tokenizer", made)) == "tito: a.jinja: is empty; copy the template again"
    )
    said = complaint(run("b.jinja", "--tokenizer", made))
    assert said.startswith("tito: b.jinja: with tools it accepts no conversation: b.jinja, line 1: raise_exc")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("",), "PATH is empty"),
        (("x", "--special-token", ""), "--special-token is empty"),
        (("x", "--seconds", "nan"), "nan is not a finite number"),
        (("x", "--seconds", "inf"), "inf is not a finite number"),
    ],
)
def test_an_option_that_says_nothing_is_refused(options: tuple[str, ...], said: str) -> None:
    result = run(*options)
    assert (result.exit_code, result.stdout) == (BAD_INPUT, "")
    assert said in result.stderr


def test_a_hub_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for told in ("offline\nand more", "Got: ConnectError: [Errno -2] offline"):
        hub(monkeypatch, OSError(told))
        words = (
            "the hub cannot be reached (give the path of a local folder, or connect to the network): offline"
        )
        assert complaint(run("someone/model")).endswith(words)
    answered = OSError("401 Client Error")
    answered.response = object()  # type: ignore[attr-defined]  # as HfHubHTTPError has it
    hub(monkeypatch, answered)
    assert complaint(run("someone/model")).endswith("and the hub refuses it: 401 Client Error")
    hub(monkeypatch, OSError())
    assert complaint(run("someone/model")).endswith("it gives no reason")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'tito-kernel[hub]'" in complaint(run("someone/model"))


def test_a_page_lists_facts_in_words_and_again_only_where_they_differ(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run(folder(tmp_path / "model", EXACT), "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "<li>follows: user, " in text
    assert "<li>random: no</li>" in text
    assert text.count("<li>random: ") == 1
    (opening, *_) = re.findall("<li>opening: (.*)</li>", text)
    assert "Be brief." in opening
    assert not re.search(r"<li>[a-z ]+: .*(\[|True|False|None)", text)


def test_the_page_is_complete_in_itself(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    hostile = folder(tmp_path / "hostile", "{{ raise_exception('<script>alert(1)</script>') }}")
    result = run(folder(tmp_path / "strips", STRIPS), hostile, "--html", file)
    text = file.read_text(encoding="utf-8")
    page = ParsedPage(text)
    assert result.exit_code == BAD_INPUT
    assert page.open == []
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    fetched = [value for name, value in page.attributes if name in {"src", "href", "data", "action"}]
    assert all(str(link).startswith("#t") for link in fetched)
    assert not re.search(r"url\(|@import|https?:", text)
    assert "&lt;script&gt;alert(1)" in text
    for told in ("sampled ids", "generation prompt", "not linted", "&lt;think&gt;", "MITO will drift here"):
        assert told in text


def test_a_page_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    made = folder(tmp_path / "exact", EXACT)
    place = tmp_path / "none" / "page.html"
    assert f"--html {place}: give a file in a folder that exists" in complaint(run(made, "--html", place))
    folder_for_page = run(made, "--html", tmp_path)
    assert (folder_for_page.exit_code, folder_for_page.stdout) == (BAD_INPUT, "")
    assert f"'{tmp_path}' is a directory" in folder_for_page.stderr


def test_help_tells_the_exit_statuses() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for line in ("0    every case is exact", "1    some cases are refused", "130  interrupted"):
        assert line in result.stdout
    assert run().exit_code == BAD_INPUT
    assert run("x", "--accept", "NOTHING").exit_code == BAD_INPUT


def test_progress_shows_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    made = folder(tmp_path / "exact", EXACT)
    told, terminal = pty.openpty()
    command = [sys.executable, "-c", COMMAND, str(made), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, check=True, timeout=120)
    os.close(terminal)
    assert b"exact default" in os.read(told, 1 << 16)
    os.close(told)
    assert json.loads(done.stdout)[0]["error"] is None
    quiet = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert quiet.stderr == b""
    assert json.loads(quiet.stdout)[0]["cases"] == json.loads(done.stdout)[0]["cases"]


def test_an_interrupt_ends_cleanly(tmp_path: Path) -> None:
    busy = folder(tmp_path / "busy", "{% for i in range(40000) %}{% endfor %}" + EXACT)
    heeding = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell may ignore it
    )
    command = [sys.executable, "-c", f"{heeding}; {COMMAND}", str(busy), "--json", "--seconds", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        try:
            time.sleep(4)
            assert started.poll() is None
            started.send_signal(signal.SIGINT)
            out, told = started.communicate(timeout=120)
        finally:
            started.kill()
    assert started.returncode == INTERRUPTED
    assert told == "tito: interrupted\n"
    assert out == ""
