"""What a lint finds: each verdict is what one fresh render of the whole conversation says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from tests.io.lint.lint_folders import (
    END,
    EOS,
    EXACT,
    HOISTS,
    NO_TOOLS,
    START,
    STRIPS,
    SWITCHED,
    WITH_TOOLS,
    chatml,
    folder,
    lint,
)
from tito_core import Reason
from tito_core.seams.probe import kinds
from tito_io.cli.errors import visible
from tito_io.lint.example_conversation import (
    ANCHOR,
    ExampleConversation,
    ExampleSampler,
    SampledExample,
    until_equal,
)
from tito_io.lint.grid import State, counts, grid
from tito_io.lint.report import Finding, LintReport, Verdict, to_json
from tito_io.lint.subject import lacking, markers
from tito_io.lint.verdict import CONTRADICTED

IDS = st.lists(st.integers(0, 4), max_size=12).map(tuple)


def found(report: LintReport, following: str, after: str) -> list[Finding]:
    """Return the findings of a case in the first rendering, whatever the content."""
    return [one for one in report.looks[0].findings if (one.following, one.after) == (following, after)]


def states(report: LintReport) -> set[State]:
    return set(counts(report.findings))


def test_a_template_that_keeps_everything_is_exact_everywhere(tmp_path: Path) -> None:
    report = lint(folder(tmp_path / "exact", EXACT))
    assert report.error is None
    assert states(report) == {State.EXACT}
    assert report.suffix[0].id == END
    assert report.stops[0][0].text == "<|im_end|>"
    assert not any(one.divergence for one in report.findings)
    named = {(one.kind, one.shape) for one in report.findings}
    assert named == {(kind, shape) for kind, shape in kinds() if kind.content in {"text", "empty"}}


def test_reasoning_that_is_dropped_is_rewritten_history_and_shown(tmp_path: Path) -> None:
    report = lint(folder(tmp_path / "strips", STRIPS))
    assert states(report) == {State.EXACT, State.REWRITTEN}
    (one,) = found(report, "user", "reasoning")
    assert one.verdict is Verdict.EXACT
    assert one.divergence is not None
    assert one.divergence.dropped == "<think>Add them.</think>"
    assert one.divergence.added == ""
    assert not one.divergence.in_prompt
    assert one.divergence.used[0].text == "<think>"
    assert one.divergence.rendered[0].text != "<think>"
    assert [two.history_rewritten for two in found(report, "tool", "reasoning and a call")] == [False, False]
    assert [two.history_rewritten for two in found(report, "user", "plain")] == [False]
    assert report.advice[0].startswith("A user message after a reasoning turn (and ")
    assert report.advice[0].endswith(
        "a fresh render drops `<think>Add them.</think>`. MITO will drift here. TITO keeps the sampled ids."
    )


def test_reasoning_that_is_written_nowhere_is_dropped_too(tmp_path: Path) -> None:
    report = lint(folder(tmp_path / "none", chatml(thought="")))
    rewritten = {one.kind.reasoning for one in report.findings if one.history_rewritten}
    assert rewritten == {True}
    assert all(one.history_rewritten for one in report.findings if one.kind.reasoning)
    (one,) = found(report, "user", "reasoning")
    assert one.divergence is not None
    assert one.divergence.dropped == "Add them.\n"


def test_what_the_template_rejects_is_refused_with_its_words(tmp_path: Path) -> None:
    report = lint(folder(tmp_path / "rejects", NO_TOOLS))
    assert states(report) == {State.EXACT, State.REJECTED}
    for one in report.findings:
        tools = "tool" in one.following or one.kind.before == "tool"
        assert (one.verdict is Verdict.REFUSED) == tools
        assert not tools or (one.reason == "TEMPLATE_REFUSED" and "no tools here" in one.detail)


def test_a_message_that_is_written_elsewhere_is_refused(tmp_path: Path) -> None:
    report = lint(folder(tmp_path / "hoists", HOISTS))
    assert states(report) == {State.EXACT, State.REFUSED}
    for one in report.findings:
        hoisted = "system" in one.shape
        assert (one.reason == Reason.SWALLOWED.name) == hoisted
        assert one.history_rewritten == hoisted


def test_a_stop_that_is_not_the_close_is_odd_and_said(tmp_path: Path) -> None:
    """The last turn ends with another token than the same turn as history, as gpt-oss has it."""
    last = "loop.last and m.role == 'assistant' and not add_generation_prompt"
    close = f"{{{{ '<eos>' if {last} else '<|im_end|>' }}}}\n"
    report = lint(folder(tmp_path / "odd", chatml(close=close), stop=EOS))
    (one,) = found(report, "user", "plain")
    assert (one.verdict, one.reason, one.history_rewritten) == (Verdict.REFUSED, "ODD_STOP", True)
    assert "exact if the policy keeps or replaces the stop" in one.detail
    assert one.divergence is not None
    assert (one.divergence.dropped, one.divergence.added) == ("<eos>", "<|im_end|>")
    # The other token must not become a stop: gpt-oss writes it inside of turns, too.
    assert not any("which is not a stop id" in sentence for sentence in report.advice)
    (cut,) = found(report, "user", "plain, cut short")
    assert cut.verdict is Verdict.EXACT


def test_stop_ids_may_be_given_as_ids_and_as_tokens(tmp_path: Path) -> None:
    made = folder(tmp_path / "stops", EXACT, stop=None)
    report = lint(made, stops=("<|im_end|>", str(START)))
    assert [(token.id, opens) for token, opens in report.stops] == [(END, False), (START, True)]
    assert [token.text for token, _ in lint(made).stops] == ["<eos>"]
    for wrong in ("<nope>", "99999", "99999999999999999999"):
        assert f"{wrong}: is neither a token nor an id" in str(lint(made, stops=(wrong,)).error)


def test_each_rendering_that_changes_something_is_looked_into(tmp_path: Path) -> None:
    def labels(name: str, template: str) -> list[str]:
        return [look.rendering.label for look in lint(folder(tmp_path / name, template)).looks]

    assert labels("plain", EXACT) == ["with tools"]
    assert labels("tools", WITH_TOOLS) == ["with tools", "without tools"]
    assert labels("switched", SWITCHED) == [
        "with tools",
        "with tools, enable_thinking=false",
        "with tools, enable_thinking=true",
    ]


def test_without_tools_or_thinking_no_turn_has_any(tmp_path: Path) -> None:
    with_tools, without = lint(folder(tmp_path / "tools", WITH_TOOLS)).looks
    assert any(one.kind.calls for one in with_tools.findings)
    assert not any(one.kind.calls or one.kind.before == "tool" for one in without.findings)
    assert without.findings
    _, off, on = lint(folder(tmp_path / "switched", SWITCHED)).looks
    assert not any(one.kind.reasoning for one in off.findings)
    assert any(one.kind.reasoning for one in on.findings)


def test_a_switch_that_is_given_is_not_tried(tmp_path: Path) -> None:
    (look,) = lint(folder(tmp_path / "given", SWITCHED), args={"enable_thinking": True}).looks
    assert look.rendering.label == "with tools, enable_thinking=true"


def test_the_seam_is_taken_apart(tmp_path: Path) -> None:
    (look,) = lint(folder(tmp_path / "exact", EXACT)).looks
    drawn = {
        seam.role: {part.name: "".join(t.text for t in part.tokens) for part in seam.parts}
        for seam in look.seams
    }
    assert set(drawn) == {"user", "tool", "system", "tool user"}
    assert drawn["user"] == {
        "close": "<|im_end|>\n",
        "opener": "<|im_start|>user\n",
        "text": "Lisbon",
        "its close": "<|im_end|>\n",
        "generation prompt": "<|im_start|>assistant\n",
    }


def test_a_lost_answer_is_refused_everywhere(tmp_path: Path) -> None:
    report = lint(folder(tmp_path / "lost", "{{ messages[0].content }}"))
    assert {(one.verdict, one.reason) for one in report.findings} == {(Verdict.REFUSED, "UNPROVEN_TAIL")}


@pytest.mark.parametrize(
    "earlier",
    [
        "m.content | upper",  # the words are found in other letters
        "(m.content or '').replace('Fjord', 'It')",  # they are not found: only the end is compared
    ],
)
def test_a_turn_that_history_writes_otherwise_is_exact(earlier: str, tmp_path: Path) -> None:
    template = EXACT.replace("m.content or ''", f"m.content if loop.last else {earlier}")
    here = states(lint(folder(tmp_path / "otherwise", template)))
    assert State.REWRITTEN in here
    assert here <= {State.EXACT, State.REWRITTEN}


def test_a_false_bridge_over_a_turn_that_history_writes_otherwise_is_never_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ExampleSampler.sample

    def played(self: ExampleSampler, one: ExampleConversation, *, cut: bool) -> SampledExample | None:
        shown = known(self, one, cut=cut)
        if shown is None:
            return None
        spoiled = (*shown.rendered[:-1], shown.rendered[-1] + 1)
        return evolve(shown, tail=None, rendered=spoiled)

    monkeypatch.setattr(ExampleSampler, "sample", played)
    report = lint(folder(tmp_path / "false", EXACT))
    assert {one.reason for one in report.findings} == {CONTRADICTED}


@pytest.mark.parametrize("wrong", ["shorter", "longer", "other"])
def test_a_bridge_that_is_not_the_tail_of_the_fresh_render_is_never_exact(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The render is the judge: with a false one nothing that is looked at stays exact."""
    spoiled: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
        "shorter": lambda tail: tail[1:],
        "longer": lambda tail: (*tail, END),
        "other": lambda tail: (*tail[:-1], tail[-1] + 1),
    }
    known = ExampleSampler.sample

    def played(self: ExampleSampler, one: ExampleConversation, *, cut: bool) -> SampledExample | None:
        shown = known(self, one, cut=cut)
        if shown is None:
            return None
        assert shown.tail is not None
        object.__setattr__(shown, "tail", spoiled[wrong](shown.tail))
        return shown

    monkeypatch.setattr(ExampleSampler, "sample", played)
    report = lint(folder(tmp_path / wrong, EXACT))
    whole = [one for one in report.findings if not (one.cut and one.kind.calls)]
    assert {one.reason for one in whole} == {CONTRADICTED}


@given(IDS.filter(bool), IDS)
def test_both_sides_agree_after_what_differs(used: tuple[int, ...], rendered: tuple[int, ...]) -> None:
    gone, new = until_equal(used, rendered)
    assert 0 < gone + new <= len(used) + len(rendered) or used[:1] == rendered[:1]
    here = used[gone : gone + ANCHOR]
    assert rendered[new : new + len(here)] == here


@given(st.text())
def test_shown_text_is_one_printable_line(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable() or not shown
    assert shown.encode("ascii" if text.isascii() else "utf-8").strip() or not text.strip()
    assert visible("\ud800\x1b[31m\n") == "\\ud800\\x1b[31m\\n"


def test_a_grid_holds_every_finding_once(tmp_path: Path) -> None:
    (look,) = lint(folder(tmp_path / "strips", STRIPS)).looks
    cells = [cell for row in grid(look).rows for cell in row.cells]
    assert sorted(map(id, (one for cell in cells for one in cell.findings))) == sorted(map(id, look.findings))
    texts = {cell.text for cell in cells}
    assert {"", "exact", "kept"} <= texts


def test_markers_are_found_by_their_looks_and_those_that_lack_are_told() -> None:
    assert markers("<|a|>{{ x }}[INST]</s><|a|>") == ("<|a|>", "[INST]", "</s>")
    assert lacking(["<|a|>"], ["<|a|>", "</s>", "</s>"]) == ("</s>",)


def test_words_that_a_template_looks_for_are_named_in_one_line(tmp_path: Path) -> None:
    counts_failures = chatml(
        before="{% set ns = namespace(bad=0) %}",
        thought="{% if 'failed:' in m.content or '' %}{% set ns.bad = ns.bad + 1 %}{% endif %}",
        close="{{ ' (again)' if ns.bad > 1 }}<|im_end|>\n",
    )
    report = lint(folder(tmp_path / "counts", counts_failures))
    advised = [one for one in report.advice if "`failed:`" in one]

    assert to_json(report)["template_words"] == ["failed:"]
    assert advised == [
        "The template looks for `failed:` in messages. A bare tokenize function must give `template_words`."
    ]
    assert not lint(folder(tmp_path / "exact", EXACT)).words
