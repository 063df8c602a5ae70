"""What tito and an engine read differently, and the table that gives a reason for each difference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.engines.difference_rows import Row, read_rows

from .models import Answer

TABLE = Path(__file__).parent / "differences.toml"


@attrs.frozen
class Difference:
    """One difference.

    Attributes:
        engine: The engine that reads otherwise.
        format: The output format.
        case: The output's name.
        kind: One of `kinds`.
    """

    engine: str
    format: str
    case: str
    kind: str


def table() -> dict[str, Row]:
    """Return the rows by name."""
    return read_rows(TABLE)


def kinds(ours: Answer, theirs: Answer) -> Iterator[str]:
    """Yield the kinds of differences between two answers; arguments are compared as JSON.

    Where calls differ, so does the content, which then is not compared. Texts are compared without white
    space at their ends, which is a kind by itself.

    >>> list(kinds({"content": "a b", "calls": []}, {"content": " a ", "reasoning": "c"}))
    ['content kept', 'reasoning']
    """
    one, other = _calls(ours), _calls(theirs)
    texts = [[(answer.get(key) or "") for answer in (ours, theirs)] for key in ("content", "reasoning")]
    (content, their_content), (reasoning, their_reasoning) = ([t.strip() for t in pair] for pair in texts)
    if len(one) != len(other):
        yield "calls more" if len(one) > len(other) else "calls fewer"
    elif one != other:
        yield "names" if [name for name, _ in one] != [name for name, _ in other] else "arguments"
    elif content != their_content:
        yield "content kept" if their_content in content else "content"
    if reasoning != their_reasoning:
        yield "reasoning"
    if any(a != b and a.strip() == b.strip() for a, b in texts):
        yield "space"


def _calls(answer: Answer) -> list[tuple[str, Any]]:
    return [(name, _value(arguments)) for name, arguments in answer.get("calls", ())]


def _value(arguments: str) -> str:
    """Return arguments in one spelling; NaN is no number that equals itself."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


def differences(
    engine: str, theirs: Mapping[tuple[str, str], Answer], name: str, ours: Mapping[str, Answer]
) -> Iterator[Difference]:
    """Yield the differences of one engine in one format."""
    for case, answer in ours.items():
        for kind in kinds(answer, theirs[name, case]):
            yield Difference(engine, name, case, kind)
