"""A lint renders what a template cannot tell apart once, and takes no text for another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.io.families.template_texts import TEXTS
from tests.io.families.test_recorded_reads import CONVERSATIONS
from tests.io.lint.lint_folders import EXACT, folder
from tito_core import TemplateRefused
from tito_io.families.family import Family
from tito_io.lint.budget import Budget
from tito_io.lint.shared_renders import SharedRenders

FAMILIES: dict[str, Family] = {}
NOW = datetime(2026, 1, 15)  # noqa: DTZ001  # templates print the wall clock, which has no zone
HELLO = {"role": "user", "content": "Hi."}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder(tmp_path_factory.mktemp("shared") / "model", EXACT)


def shared(base: Path, source: str, **options: Any) -> SharedRenders:
    """Return the renders of a template; its family is kept, since hypothesis asks for it often."""
    if source not in FAMILIES:
        (base / "other.jinja").write_text(source)
        FAMILIES[source] = Family.load(base, template="other.jinja", **options)
    return SharedRenders(FAMILIES[source].tokenize_fn(), Budget())


def said(render: Any, messages: Sequence[Any]) -> str:
    try:
        return str(render(messages))
    except TemplateRefused as refused:
        return f"refused: {refused}"


@pytest.mark.parametrize("source", [*TEXTS["readers"], "{{ messages | pprint }}"])
@settings(max_examples=6)
@given(conversations=st.lists(CONVERSATIONS, min_size=1, max_size=6))
def test_a_shared_render_is_that_of_the_conversation(
    base: Path, source: str, conversations: list[list[dict[str, Any]]]
) -> None:
    renders = shared(base, source)
    for one in (*conversations, *conversations):
        wanted = said(lambda messages: renders.bound.text(messages, add_generation_prompt=True), one)
        assert said(lambda messages: renders.text(messages, speaking=True), one) == wanted


def test_what_the_template_does_not_read_is_rendered_once(base: Path) -> None:
    renders = shared(base, "{% for m in messages %}{{ m.content }}{% endfor %}{{ add_generation_prompt }}")
    for reasoning in ("a", "b", "c"):
        renders.text([{**HELLO, "reasoning": reasoning}], speaking=True)
    assert renders.budget.renders == 1
    assert renders.text([HELLO], speaking=False) == "Hi.False"
    assert renders.budget.renders == 2


def test_a_key_that_is_read_later_tells_earlier_conversations_apart(base: Path) -> None:
    source = "{% for m in messages %}{{ m.name if m.content == 'x' else m.content }}{% endfor %}"
    renders = shared(base, source)
    for content, name in (("Hi.", "a"), ("Hi.", "b"), ("x", "a"), ("x", "b"), ("Hi.", "c")):
        text = renders.text([{"role": "user", "content": content, "name": name}], speaking=True)
        assert text == (name if content == "x" else content)


def test_what_a_render_read_that_is_not_remembered_counts_too(base: Path) -> None:
    printed = "{% if messages[0].content == 'x' %}{{ messages[1].name }}{{ 'x'.upper }}{% endif %}"
    written = "{% if messages[0].content == 'y' %}{{ messages[1].name }}{% endif %}"
    renders = shared(base, printed + written)

    def texts(content: str) -> list[str]:
        named = ({**HELLO, "name": name} for name in "ab")
        return [renders.text([{**HELLO, "content": content}, one], speaking=True) for one in named]

    assert texts("Hi.") == ["", ""]
    texts("x")
    assert texts("y") == ["a", "b"]


def test_a_refusal_is_remembered_with_its_words(base: Path) -> None:
    renders = shared(base, "{{ raise_exception('no ' ~ messages[0].content) }}")
    for _ in range(2):
        with pytest.raises(TemplateRefused, match="no Hi"):
            renders.text([HELLO], speaking=True)
    assert renders.budget.renders == 1


@pytest.mark.parametrize(
    ("source", "renders"),
    [
        ("{{ strftime_now('%Y') }}{{ messages[0].content }}", 1),
        ("{{ strftime_now('%f') }}{{ messages[0].content }}", 3),
        ("{{ strftime_now('%' ~ messages[0].role[:0] ~ 'f') }}", 3),
        ("{{ messages[0].content.upper }}", 3),
        ("{{ messages | pprint }}", 3),
    ],
)
def test_what_may_differ_each_time_is_rendered_each_time(base: Path, source: str, renders: int) -> None:
    ticks = count()
    known = shared(base, source, clock=lambda: NOW + timedelta(microseconds=next(ticks)))
    for _ in range(3):
        known.text([HELLO], speaking=True)
    assert known.budget.renders == renders


def test_a_render_that_runs_into_a_limit_counts_each_time(base: Path) -> None:
    renders = shared(base, "{{ 'x' * 99999999999 }}")
    for _ in range(2):
        with pytest.raises(TemplateRefused):
            renders.text([HELLO], speaking=True)
    assert renders.budget.heavy == 2
