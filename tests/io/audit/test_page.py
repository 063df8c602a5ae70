"""The audit page: complete in one file, without scripts, and hostile text is nothing but text."""

from __future__ import annotations

import re
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

import attrs
import pytest
from rich.console import Console

from tito_core.drift.breaks import Break, BreakSelection, BreakText, Cause, TurnPart
from tito_core.drift.tally import Tally
from tito_io.audit.page import Heading, page
from tito_io.audit.rates import figures
from tito_io.audit.report import AuditReport
from tito_io.audit.table import table
from tito_io.samples.conversation import Problem

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001  # a time to print
HEADING = Heading(file="rollouts.jsonl", family="qwen3", block=16, created=NOON)
HOSTILE = "</style><script>alert(1)</script><img src=http://x.example/y onerror=alert(2)>\x1b[31m"

BREAK = Break(
    conversation="c1",
    call="t1",
    order=1,
    turn="t0",
    part=TurnPart.CONTENT,
    cause=Cause.RETOKENIZED,
    detail="the same text",
    happened=False,
    at=1200,
    used_ids=2,
    rendered_ids=1,
    sampled_ids=2,
    used=(BreakText(5, "un"), BreakText(6, "do ne\n")),
    rendered=(BreakText(7, "undo ne\n"),),
    before="it is ",
    used_after=".",
    rendered_after=".",
)


def report(*breaks: Break, **counts: Any) -> AuditReport:
    causes: dict[str, int] = {}
    for one in breaks:
        causes[one.cause.name] = causes.get(one.cause.name, 0) + 1
    tally = Tally(conversations=2, compared_prompts=9, calls=9, breaks=len(breaks), causes=causes, **counts)
    return AuditReport(tally=tally, choice=BreakSelection(20).with_breaks(breaks))


def printed(audited: AuditReport, width: int = 120, **options: Any) -> str:
    """Return what a console prints of a report."""
    console = Console(width=width, **options)
    with console.capture() as caught:
        console.print(table(audited))
    return caught.get()


VOID = frozenset(("meta", "link", "img", "br", "input"))
"""Elements that no tag ends."""


class ParsedPage(HTMLParser):
    """A page as a browser reads it: its tags, attributes and text, and the tags that are still open."""

    def __init__(self, text: str) -> None:
        """Read it all."""
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [tag] if tag not in VOID else []
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def hostile() -> AuditReport:
    bad = attrs.evolve(
        BREAK,
        conversation=HOSTILE,
        turn=HOSTILE,
        call=HOSTILE,
        detail=HOSTILE,
        before=HOSTILE,
        used=(BreakText(1, HOSTILE),),
        used_after=HOSTILE,
        rendered=(),
    )
    return report(bad).with_problems([Problem(3, HOSTILE)])


@pytest.mark.parametrize("audited", [report(), report(BREAK), hostile()], ids=["none", "one", "hostile"])
def test_nothing_is_fetched_and_nothing_runs(audited: AuditReport) -> None:
    text = page(audited, attrs.evolve(HEADING, file=HOSTILE if audited.problems else "a.jsonl"))
    parsed = ParsedPage(text)
    assert not {"script", "img", "link", "iframe", "object", "embed", "form", "a", "base"} & set(parsed.tags)
    assert not {"src", "href", "srcset", "action"} & {name for name, _ in parsed.attributes}
    assert not [name for name, _ in parsed.attributes if name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "\x1b" not in text
    assert ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'") in zip(
        [value for name, value in parsed.attributes if name == "http-equiv"],
        [
            value
            for name, value in parsed.attributes
            if name == "content" and value and "default-src" in value
        ],
        strict=True,
    )


def test_a_break_shows_its_tokens_its_causes_and_its_place() -> None:
    both = attrs.evolve(BREAK, also=(Cause.UNKNOWN,), used_ids=60, happened=True)
    text = page(report(both, actual_breaks=1), HEADING)
    words = re.sub(r"\s+", " ", ParsedPage(text).words)
    assert 'title="id 5">un<' in text
    assert "do·ne⏎" in words
    assert "+ unknown" in words
    assert "a turn's content, at id 1,200:" in words
    assert "c1 / t0; seen by t1" in words
    assert "+58 ids" in words
    assert "this really happened" in words
    assert "2026-01-01 12:00" in words


def test_an_insertion_is_shown_as_nothing_on_one_side() -> None:
    text = page(report(attrs.evolve(BREAK, used=(), used_ids=0)), HEADING)
    assert text.count("∅</span>") == 1


def test_a_filter_for_each_cause_that_is_shown() -> None:
    other = attrs.evolve(BREAK, cause=Cause.SEAM, at=3)
    text = page(report(BREAK, other), HEADING)
    assert text.count('type="radio"') == 3
    assert "article:not(.SEAM)" in text
    assert page(report(BREAK), HEADING).count('type="radio"') == 0


def test_a_page_without_breaks_says_so() -> None:
    words = ParsedPage(page(report(), HEADING)).words
    assert "no drift in 2 conversations" in words
    assert "Causes" not in words


def test_a_page_says_what_was_not_audited() -> None:
    audited = report(refused_prompts=1, prompts_with_media=2, prompts_without_messages=3).with_problems(
        Problem(line, "no JSON") for line in range(25)
    )
    words = ParsedPage(page(audited, HEADING)).words
    for line in (
        "line 3: no JSON",
        "5 more",
        "1 prompt that the template refuses",
        "2 prompts with images",
        "3 prompts without",
    ):
        assert line in words
    text = printed(audited)
    for line in (
        "not audited: line 3: no JSON",
        "not audited: 5 more",
        "1 prompt that the template refuses",
    ):
        assert line in text


def test_the_table_and_the_page_show_the_same_rates() -> None:
    audited = report(
        BREAK, restated_ids=8, changed_ids=2, cached_ids=64, cached_ids_by_messages=48, prompt_ids=90
    )
    text = printed(audited)
    words = ParsedPage(page(audited, HEADING)).words
    for one in figures(audited.tally):
        assert one.percent in words
        assert f"{one.percent}  ({one.counted})" in text
    assert figures(audited.tally)[0].percent == "25.0%"
    assert figures(audited.tally)[-1].percent == "25.0%"


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_break_takes_three_lines_however_many_tokens_it_has(width: int) -> None:
    long = attrs.evolve(BREAK, used=tuple(BreakText(number, " word") for number in range(48)), used_ids=900)
    lines = printed(report(long), width).splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.split()[:3] == ["900", "ids", "used"]]
    assert lines[at].startswith("     900 ids used     ·word·word")
    assert lines[at].endswith("…")
    assert lines[at + 1].split()[2] == "rendered"
    assert lines[at - 1].startswith("retokenized")
    assert lines[at + 2] == ""
    assert max(map(len, lines)) <= width


def test_sampled_control_characters_do_not_reach_a_terminal() -> None:
    text = printed(hostile(), 200, force_terminal=True)
    assert "\x1b[31mx" not in text
    assert "alert(1)" in text
