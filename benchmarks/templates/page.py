"""Every template on one HTML page, complete in itself, in tables that are sorted in several ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

import attrs

from benchmarks.templates.corpus import PACKAGE
from benchmarks.templates.report import (
    JUDGED,
    LETTERS,
    VERDICTS,
    answers,
    counts,
    general,
    letter,
    reasons,
    share,
)
from benchmarks.templates.shapes import LATER, NEXT, RESULTS, SHAPES
from benchmarks.templates.verdict import EXACT, WAYS, Judged, Rendered
from benchmarks.templating import environment
from tito_io.pages import printable

LONGEST, CHANGES = 160, 6
"""Characters of a seam, and changes, that are shown of a template."""
NEW = (NEXT["content"], LATER["content"], RESULTS[0])


@attrs.frozen
class Line:
    """A template on the page.

    Attributes:
        anchor: Where its section is.
        template: The template.
        exact: The share of exact answers with a profile.
        refused: How many of those answers are not exact.
        reasons: Why, the most frequent first.
        seams: What follows a turn, by what comes next.
        changed: What a re-render leaves out.
    """

    anchor: str
    template: Judged
    exact: float
    refused: int
    reasons: tuple[tuple[str, int], ...]
    seams: tuple[tuple[str, str], ...]
    changed: tuple[str, ...]


def page(found: Sequence[Judged], day: date) -> str:
    """Return the page of what was judged on a `day`."""
    lines = [line(place, template) for place, template in enumerate(found)]
    pages = environment(
        Path(__file__).parent, finalize=lambda value: printable(value) if type(value) is str else value
    )
    counted = counts(found)
    return pages.get_template("page.html.jinja").render(
        day=day,
        versions=[f"{name} {version(name)}" for name in ("tito-kernel", PACKAGE)],
        orders=orders(lines),
        lines=lines,
        counted=counted,
        shares={way: share(counted, way) for way in WAYS},
        ways=WAYS,
        verdicts=VERDICTS,
        reasons=[row for row in reasons(found) if row.counts.keys() & {"", "profile"}],
        letters=LETTERS,
        shapes=SHAPES,
        letter=letter,
    )


def orders(lines: Sequence[Line]) -> list[tuple[str, str, list[Line]]]:
    """Return anchor, title and lines of each order; the last one is shown where none is chosen."""
    return [
        ("exact", "Least exact first", sorted(lines, key=lambda one: (one.exact, -one.refused))),
        ("spread", "Most repositories first", sorted(lines, key=lambda one: -len(one.template.repositories))),
        ("name", "By name", sorted(lines, key=lambda one: one.template.name.lower())),
    ]


def line(place: int, template: Judged) -> Line:
    """Return a template's line: the answers of a stitch with a profile."""
    known = [one for _, _, _, one in answers([template]) if one.way == "profile" and one.verdict in JUDGED]
    why = Counter(general(one.reason, template.name) for one in known if one.verdict != EXACT)
    first = template.renderings[0] if template.renderings else None
    return Line(
        f"t{place}",
        template,
        sum(one.verdict == EXACT for one in known) / len(known) if known else 0.0,
        sum(why.values()),
        tuple(why.most_common(4)),
        () if first is None else tuple((role, seam(text)) for role, text in first.seams.items()),
        changed(template.renderings),
    )


def seam(text: str) -> str:
    r"""Return what follows a turn, with three dots for the new message.

    >>> seam("<|im_end|>\n<|im_start|>user\nAnd tomorrow?<|im_end|>")
    '<|im_end|>⏎<|im_start|>user⏎…<|im_end|>'
    """
    for words in NEW:
        text = text.replace(words, "…")
    text = text.replace("\n", "⏎")
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def changed(renderings: Sequence[Rendered]) -> tuple[str, ...]:
    """Return what a re-render leaves out in any conversation, each once."""
    gone = (one for rendering in renderings for cell in rendering.cells for one in cell.changed)
    return tuple(dict.fromkeys(gone))[:CHANGES]
