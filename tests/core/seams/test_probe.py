"""A probe asks about the usual cases."""

from __future__ import annotations

from itertools import product

from tito_core.seams.probe import kinds

USUAL = [(kind, shape) for kind, shape in kinds()]


def test_the_usual_cases_are_told_apart() -> None:
    assert len(set(USUAL)) == len(USUAL)
    assert {(kind.before, kind.reasoning, kind.calls) for kind, _ in USUAL} == set(
        product(("user", "tool"), (False, True), (0, 1, 2))
    )
    assert {kind.content for kind, _ in USUAL if not kind.calls} == {"text"}
    assert len({kind.label for kind, _ in USUAL}) == 12
