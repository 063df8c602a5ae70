"""The corpus of chat templates: the oracle sees what templates do, and finds every kind of planted error."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from benchmarks.templates import __main__ as command
from benchmarks.templates import kernel
from benchmarks.templates.corpus import CorpusError, Entry, among, bundled, distinct
from benchmarks.templates.judge import judged
from benchmarks.templates.oracle import Truth, Unclear, first_stop, stops, truth
from benchmarks.templates.page import page
from benchmarks.templates.report import data, reasons, wrong
from benchmarks.templates.shapes import SHAPES, SPELLINGS, Conversation, conversations
from benchmarks.templates.stand_in import family_of
from benchmarks.templates.verdict import DROPPED, EXACT, UNCLOSED, UNRENDERED, WAYS, WRONG
from tito_core import Bridge, Extension, Refusal, Stitched
from tito_core import answer as kernel_answer

SAID = (
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "<call>{{ c.function.arguments | tojson }}</call>{% endfor %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n" + SAID + "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPENERS = (
    "{% for m in messages %}<|{{ 'observation' if m.role == 'tool' else m.role }}|>\n" + SAID + "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CALLED = CHATML.replace("<|im_end|>", "{{ '<|call|>' if m.tool_calls else '<|im_end|>' }}")
WITHOUT_TOOLS = CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}")
HOISTED = "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}" + CHATML.replace(
    "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
)
STRICT = "{% if messages[-1].role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}" + CHATML
UNMARKED = "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n\n{% endfor %}ASSISTANT: "
PARTS = CHATML.replace("{{ m.content or '' }}", "{% for part in m.content %}{{ part['text'] }}{% endfor %}")


def write_of(template: str) -> Callable[..., str]:
    bound = family_of(Entry("toy", template)).tokenize_fn()

    def write(messages: Sequence[Mapping[str, Any]], *, speaking: bool = True) -> str:
        return bound.text(messages, add_generation_prompt=speaking)

    return write


def conversation(shape: str) -> Conversation:
    return conversations(SPELLINGS[0])[SHAPES.index(shape)]


def found(template: str, shape: str) -> Truth | Unclear:
    return truth(write_of(template), conversation(shape))


def shown(template: str) -> Mapping[str, tuple[Conversation, Truth]]:
    """Return what the oracle sees in each conversation that the template shows."""
    seen = {}
    for one in conversations(SPELLINGS[0]):
        after = truth(write_of(template), one)
        if isinstance(after, Truth):
            seen[one.shape] = one, after
    return seen


def verdicts(template: str, way: str = "profile") -> dict[str, tuple[str, str]]:
    (rendering, *_) = judged(Entry("toy", template)).renderings
    return {
        cell.shape: (one.verdict, one.reason)
        for cell in rendering.cells
        for one in cell.answers
        if one.way == way
    }


# --- the oracle ---------------------------------------------------------------------------------------


def test_what_follows_a_turn_is_read_off_the_whole_conversation() -> None:
    seen = found(CHATML, "user")
    assert isinstance(seen, Truth)
    assert seen.after == "<|im_end|>\n<|im_start|>user\nAnd tomorrow?<|im_end|>\n<|im_start|>assistant\n"
    assert seen.lost is None


def test_the_rest_of_the_last_call_comes_before_the_close() -> None:
    seen = found(CHATML, "two tools")
    assert isinstance(seen, Truth)
    assert seen.calls == len(conversation("two tools").turn["tool_calls"])
    assert seen.after.startswith('"}}</call><|im_end|>\n<|im_start|>tool\nrain')


@pytest.mark.parametrize(
    ("template", "shape", "lost"),
    [
        (WITHOUT_TOOLS, "tool", "tool"),
        (WITHOUT_TOOLS, "tool then user", "tool"),
        (HOISTED, "system", "system"),
    ],
)
def test_a_new_message_that_the_template_drops_or_moves_is_lost(template: str, shape: str, lost: str) -> None:
    seen = found(template, shape)
    assert isinstance(seen, Truth)
    assert seen.lost == lost


@pytest.mark.parametrize(
    "template",
    [
        CHATML.replace("{{ m.content or '' }}", "{{ m.content if m.role != 'assistant' }}"),
        CHATML.replace("{{ m.content or '' }}", "{{ m.content }}{{ m.content }}"),
        CHATML.replace("<|im_end|>", "{{ m.content | length }}<|im_end|>"),
    ],
    ids=["dropped", "repeated", "measured"],
)
def test_the_oracle_says_where_it_cannot_see_the_end_of_a_turn(template: str) -> None:
    assert isinstance(found(template, "user"), Unclear)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, {"<|im_end|>"}),
        (CALLED, {"<|im_end|>", "<|call|>"}),
        (CHATML.replace("<|im_end|>", "<call><|im_end|>"), {"<|im_end|>"}),
        (OPENERS, {"<|user|>", "<|observation|>", "<|system|>"}),
        (UNMARKED, set()),
    ],
    ids=["one", "another after calls", "the last of two", "openers", "none"],
)
def test_stops_are_the_markers_that_end_turns(template: str, expected: set[str]) -> None:
    markers = {"<|im_end|>", "<|im_start|>", "<call>", "</call>", "<|call|>"}
    markers |= {f"<|{role}|>" for role in ("user", "assistant", "system", "observation")}
    assert stops(write_of(template), shown(template), markers).all == expected


def test_a_stop_in_a_new_message_ends_no_turn() -> None:
    seen = Truth("", "\nUSER: say <end>", None, 0, 7)
    assert first_stop(seen, {"<end>"}) is None


# --- the judge ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template", [CHATML, CALLED, OPENERS, PARTS], ids=["chatml", "called", "openers", "parts"]
)
def test_a_usual_template_is_exact_everywhere(template: str) -> None:
    seen = verdicts(template)
    assert set(seen) == set(SHAPES)
    assert {shape for shape, (verdict, _) in seen.items() if verdict != EXACT} <= {"tool after a cut turn"}


def test_a_dropped_message_is_refused_rightly() -> None:
    seen = verdicts(WITHOUT_TOOLS)
    assert seen["tool"] == (DROPPED, "the template drops a new tool message")
    assert seen["user"][0] == EXACT


def test_the_templates_own_error_is_reported() -> None:
    (rendering, *_) = judged(Entry("toy", STRICT)).renderings
    cells = {cell.shape: cell for cell in rendering.cells}
    assert cells["tool"].verdict == UNRENDERED
    assert "no tools" in cells["tool"].reason
    assert cells["tool then user"].verdict == ""


def test_a_template_without_stops_is_exact_where_the_policy_keeps_the_sampled_one() -> None:
    assert verdicts(UNMARKED)["user"][0] == UNCLOSED


def planted(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the driver of the kernel's questions with its results changed."""
    real = kernel_answer

    def answer(questions: Any, tokenize_fn: Any) -> Any:
        result = real(questions, tokenize_fn)
        return change(result) if isinstance(result, Stitched | Refusal) else result

    return answer


def with_ids(change: Callable[[list[int]], list[int]]) -> Callable[[Any], Any]:
    """Return a change of a stitched prompt's ids."""

    def changed(result: Any) -> Any:
        if not isinstance(result, Stitched):
            return result
        return attrs.evolve(result, ids=type(result.ids).of(change(result.ids.tolist()), "ids"))

    return changed


@pytest.mark.parametrize(
    "change",
    [
        with_ids(lambda ids: ids[:-1]),
        with_ids(lambda ids: [*ids, ids[-1]]),
        with_ids(lambda ids: [*ids[:-3], *ids[-1:-4:-1]]),
        with_ids(lambda ids: [ids[0] + 1, *ids[1:]]),
        with_ids(lambda ids: ids[:12] + ids[13:]),
    ],
    ids=["end left out", "end twice", "order", "kept id changed", "kept id left out"],
)
def test_planted_ids_are_found(change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "answer", planted(change))
    judgement = judged(Entry("toy", CHATML))
    ways = {one.way for _, _, cell, one in wrong([judgement]) if cell.shape == "user"}
    assert ways == {"stitch", "profile"}


def test_an_answer_where_a_message_is_dropped_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    exact: list[Stitched] = []

    def answers_all(result: Any) -> Any:
        exact.extend([result] if isinstance(result, Stitched) else [])
        return exact[-1]

    monkeypatch.setattr(kernel, "answer", planted(answers_all))
    seen = verdicts(WITHOUT_TOOLS)
    assert seen["tool"] == (WRONG, "answered, and the template drops a new tool message")
    assert seen["user after an odd stop: refuse"] == (WRONG, "answered after an odd stop")


def test_a_kernel_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(_: Any) -> Any:
        raise IndexError("planted")

    monkeypatch.setattr(kernel, "answer", planted(raises))
    assert verdicts(CHATML)["user"] == (WRONG, "raised IndexError: planted")


def test_a_wrong_bridge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Longer(Bridge):
        def extend(self, *args: Any, **known: Any) -> Extension | Refusal:
            result = super().extend(*args, **known)
            if isinstance(result, Refusal):
                return result
            ids = result.ids.tolist()
            return attrs.evolve(result, ids=type(result.ids).of([*ids, ids[-1]], "ids"))

    monkeypatch.setattr(kernel, "Bridge", Longer)
    assert {way for way in WAYS if verdicts(CHATML, way)["user"][0] == WRONG} == set(WAYS[2:])


# --- the corpus, the command and the page -------------------------------------------------------------


def test_the_corpus_names_repositories_and_has_each_template_once() -> None:
    entries = bundled()
    assert len(distinct(entries)) == len(entries)
    assert sum(len(entry.repositories) for entry in entries) > len(entries)


def test_equal_templates_count_once_and_equal_names_are_told_apart() -> None:
    kept = distinct([Entry("a", "1"), Entry("b", "1"), Entry("a", "2")])
    assert [entry.text for entry in kept] == ["1", "2"]
    assert kept[1].name == f"a@{kept[1].digest[:6]}"


def test_templates_are_read_from_folders_wheels_and_source_distributions(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one.jinja").write_bytes(b"a\r\nb")
    wheel, source = tmp_path / "x.whl", tmp_path / "x.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x/one.jinja", "a\nb")
    with tarfile.open(source, "w:gz") as tar:
        info = tarfile.TarInfo("x/one.jinja")
        info.size = 3
        tar.addfile(info, BytesIO(b"a\nb"))
    found = [entry for path in (tmp_path / "folder", wheel, source) for entry in among(path)]
    assert found == [Entry("one", "a\nb")] * 3
    with pytest.raises(CorpusError, match=r"give a folder, a \.whl or a \.tar\.gz"):
        list(among(tmp_path / "folder" / "one.jinja"))


def test_the_command_prints_data_writes_a_page_and_ends_with_1_if_anything_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys = [Entry("toy", CHATML, ("a/b",)), Entry("strict", STRICT), Entry("broken", "{% if %}")]
    monkeypatch.setattr(command, "bundled", lambda: toys)
    monkeypatch.setattr(command, "_judgements", lambda entries, _: map(judged, entries))
    file = tmp_path / "page.html"
    result = CliRunner().invoke(command.main, ["--json", "--page", str(file)])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert [one["name"] for one in printed["templates"]] == ["toy", "strict", "broken"]
    assert "toy" in file.read_text()
    assert "<script" not in file.read_text()
    monkeypatch.setattr(kernel, "answer", planted(with_ids(lambda ids: ids[:-1])))
    assert CliRunner().invoke(command.main, ["--only", "toy"]).exit_code == 1


def test_a_template_that_does_not_compile_is_reported() -> None:
    judgement = judged(Entry("broken", "{% if %}"))
    assert "broken.jinja, line 1" in judgement.error
    assert [row.verdict for row in reasons([judgement])] == ["not loaded"]


def test_no_template_text_is_on_the_page_or_in_the_data() -> None:
    secret = "{# a comment that no render shows #}" + CHATML
    seen = [judged(Entry("toy", secret))]
    assert "comment that no render" not in page(seen, date(2026, 1, 15)) + json.dumps(data(seen))
