"""Lint agrees with the proof over real families. Needs `TITO_FAMILIES`: see tests/families."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.families import bridged, cells
from tests.model_folders import FAMILIES, needs_families
from tito_core.seams.case import TurnKind
from tito_io.lint.grid import State, counts
from tito_io.lint.report import Finding, LintReport
from tito_io.lint.run import LintSettings, lint_subject
from tito_io.lint.subject import SubjectOptions, subjects
from tito_io.lint.verdict import CONTRADICTED

pytestmark = needs_families
CASES = ("glm4.5", "gpt-oss", "gemma3")
WITH_TOOLS = next(one for one in cells.RENDERINGS if one["tools"] and len(one) == 1)
KNOWN: dict[str, LintReport] = {}


def plain(before: str, *, reasoning: bool) -> TurnKind:
    return TurnKind(before=before, reasoning=reasoning, calls=0, content="text")


def calling(before: str, calls: int, *, reasoning: bool = False, content: str = "empty") -> TurnKind:
    return TurnKind(before=before, reasoning=reasoning, calls=calls, content=content)


NAMED: Mapping[str, tuple[TurnKind, tuple[str, ...], bool]] = {
    "user": (plain("user", reasoning=False), ("user",), False),
    "user after reasoning": (plain("user", reasoning=True), ("user",), False),
    "user after a cut turn": (plain("user", reasoning=False), ("user",), True),
    "user after a tool loop": (plain("tool", reasoning=False), ("user",), False),
    "user after reasoning in a tool loop": (plain("tool", reasoning=True), ("user",), False),
    "tool": (calling("user", 1), ("tool",), False),
    "two tools": (calling("user", 2), ("tool+",), False),
    "tool then user": (calling("user", 1), ("tool", "user"), False),
    "tool after a tool turn": (calling("tool", 1), ("tool",), False),
    "tool after reasoning": (calling("user", 1, reasoning=True), ("tool",), False),
    "tool after a cut turn": (calling("user", 1, content="text"), ("tool",), True),
}


def looked_into(name: str) -> LintReport:
    """Return the report of a family's own template, made once."""
    if name not in KNOWN:
        (subject, *_) = cells.subjects(FAMILIES / name)
        (one, *_) = subjects(str(FAMILIES / name), SubjectOptions(template="default"))
        KNOWN[name] = lint_subject(one, LintSettings(stops=tuple(map(str, sorted(subject.stops)))))
    return KNOWN[name]


def found(name: str, shape: str) -> Finding:
    kind, following, cut = NAMED[shape]
    return next(
        one
        for one in looked_into(name).looks[0].findings
        if (one.kind, one.shape, one.cut) == (kind, following, cut)
    )


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_is_that_of_the_table(name: str) -> None:
    (subject,) = (one for one in cells.subjects(FAMILIES / name) if one.template == "chat_template")
    judged = {cell.shape: cell.verdict for cell in cells.Judge.of(subject, WITH_TOOLS, timed=False).cells()}
    for shape in NAMED:
        assert found(name, shape).refused == (judged[shape] != bridged.EXACT), shape


@pytest.mark.parametrize("name", CASES)
def test_no_certificate_is_contradicted_and_a_divergence_is_always_shown(name: str) -> None:
    report = looked_into(name)
    assert report.error is None
    assert CONTRADICTED not in {one.reason for one in report.findings}
    assert all(one.history_rewritten == (one.divergence is not None) for one in report.findings)


@pytest.mark.parametrize("name", ["qwen3", "glm4.5"])
def test_a_reasoning_family_drops_its_thinking_once_the_user_speaks(name: str) -> None:
    """And keeps it while it is called back by tools."""
    one = found(name, "user after reasoning")
    assert State.of(one) is State.REWRITTEN
    assert one.divergence is not None
    assert "Add them." in one.divergence.dropped
    assert State.of(found(name, "tool after reasoning")) is State.EXACT
    assert any(
        "a reasoning turn" in told and "TITO keeps the sampled ids" in told
        for told in looked_into(name).advice
    )


def test_llama_writes_what_it_wrote() -> None:
    assert State.of(found("llama3", "user")) is State.EXACT
    assert State.of(found("llama3", "tool")) is State.EXACT
    assert State.of(found("llama3", "two tools")) is State.REJECTED


def test_gemma_rejects_everything_but_turns() -> None:
    states = counts(looked_into("gemma3").looks[0].findings)
    assert State.of(found("gemma3", "user")) is State.EXACT
    assert State.of(found("gemma3", "tool")) is State.REJECTED
    assert states[State.REFUSED] == 0


def test_gpt_oss_ends_its_last_turn_as_no_other() -> None:
    """A final answer is sampled up to `<|return|>`, which history writes as `<|end|>`."""
    one = found("gpt-oss", "user")
    assert (one.reason, one.history_rewritten) == ("ODD_STOP", True)
    assert one.divergence is not None
    assert (one.divergence.dropped, one.divergence.added) == ("<|return|>", "<|end|>")
    assert "exact if the policy keeps or replaces the stop" in one.detail
    assert State.of(found("gpt-oss", "tool")) is State.EXACT
    assert looked_into("gpt-oss").looks[0].facts["clock"] == "in the opening"


def test_an_image_goes_by_ids_in_a_real_template() -> None:
    media = looked_into("gemma3").media
    assert media is not None
    assert (media.written, media.placeholder_text) == ("<start_of_image>", "<start_of_image>")
    assert [one.verdict for one in media.cases] == ["exact", "exact", "exact", "rejected"]
