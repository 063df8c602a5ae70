"""Pages: values are escaped, and the pages of lint, audit and conform are legible in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from tests.io.audit.test_page import BREAK, HEADING, HOSTILE, report
from tests.io.lint.lint_folders import HOISTS, NO_TOOLS, STRIPS, folder, lint
from tests.io.pages.browser import Page, check_layout, needs_browser, page
from tito_core.drift.breaks import BreakText, Cause
from tito_io.audit.page import page as audit_page
from tito_io.conform.judge import judge
from tito_io.conform.naive import answer as naive
from tito_io.conform.report import Report, to_html
from tito_io.conform.vector import make_vectors
from tito_io.lint.page import page as lint_page
from tito_io.lint.report import LintReport
from tito_io.pages import _environment, printable, render


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with page(tmp_path_factory.mktemp("browser")) as lent:
        yield lent


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the addresses of the pages, each with all that it can show."""
    place = tmp_path_factory.mktemp("pages")
    templates = {"strips": STRIPS, "no_tools": NO_TOOLS, "hoists": HOISTS}
    reports = [lint(folder(place / name, template)) for name, template in templates.items()]
    reports.append(LintReport(path="broken", template="default", error=f"cannot be read: {HOSTILE!r}"))
    long = attrs.evolve(
        BREAK, used=tuple(BreakText(number, " word") for number in range(48)), used_ids=900, happened=True
    )
    breaks = [attrs.evolve(long, cause=cause, also=(Cause.UNKNOWN,), at=9) for cause in Cause]
    counts = {
        "restated_ids": 8,
        "changed_ids": 2,
        "cached_ids": 64,
        "cached_ids_by_messages": 48,
        "refused_prompts": 2,
    }
    texts = {"lint": lint_page(reports), "audit": audit_page(report(*breaks, **counts), HEADING)}
    vectors = make_vectors("valid/opens-thinking")
    texts["conform"] = to_html(Report(HOSTILE, [judge(one, naive(one.question)) for one in vectors]))
    for name, text in texts.items():
        (place / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: (place / f"{name}.html").as_uri() for name in texts}


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("name", ["lint", "audit", "conform"])
def test_a_page_fits_its_window_and_is_legible(
    name: str, width: int, *, dark: bool, window: Page, pages: dict[str, str]
) -> None:
    window.look(width, dark=dark)
    window.go(pages[name])
    window.value("document.querySelectorAll('details').forEach(one => { one.open = true })")
    check_layout(window, width, dark=dark)
    assert window.problems == []
    assert window.requests == [pages[name]]


@needs_browser
def test_a_cause_can_be_shown_alone_without_a_script(window: Page, pages: dict[str, str]) -> None:
    window.look(1400)
    window.go(pages["audit"])
    shown = "[...document.querySelectorAll('article')].filter(one => one.checkVisibility()).length"
    assert window.value(shown) == len(Cause)
    window.value("document.querySelector('label[for=only-SEAM]').click()")
    assert window.value(shown) == 1


def test_a_template_must_be_given_all_its_values() -> None:
    with pytest.raises(UndefinedError, match="reports"):
        render("lint/page.html.jinja")


def test_no_template_writes_a_control_character() -> None:
    """Every value of a page passes one place, which no template can forget."""
    template = _environment().from_string("{{ a }} {{ b }} {{ a | coded }} {{ a ~ '`' }}")
    assert template.render(a="\x1b[31m", b=Markup("<b>")) == "␛[31m <b> ␛[31m ␛[31m`"


def test_control_characters_and_marks_that_reorder_text_are_shown_as_signs() -> None:
    assert printable("a\x00\x1b\r\n\t\u202eb\ud800\x85") == "a␀␛␍\n\t�b��"
    assert printable("漢字\u3000ü\N{NO-BREAK SPACE}") == "漢字\u3000ü\N{NO-BREAK SPACE}"
