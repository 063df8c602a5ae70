"""Which of several steps is continued: the longest, the likest, the latest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core import example
from tito_core import Forgiveness, Located, Policy, Reason, Refusal, Step, Trajectory, locate

SHORT = example.step()
LONG = example.step(example.prompt(SHORT), "yes")


def used(steps: Sequence[Step], prompt: Any, **more: Any) -> tuple[Step, frozenset[Forgiveness]]:
    found = locate(steps, prompt, **more)
    assert isinstance(found, Located)
    return found.match.step, found.match.forgiven


@pytest.mark.parametrize("order", [(SHORT, LONG), (LONG, SHORT), (SHORT, LONG, SHORT)])
@pytest.mark.parametrize("kind", [list, Trajectory])
def test_the_longest_step_is_continued_whatever_the_order(kind: Any, order: Sequence[Step]) -> None:
    assert used(kind(order), example.prompt(LONG)) == (LONG, frozenset())
    assert used(kind(order), example.prompt(SHORT, "other")) == (SHORT, frozenset())


def test_of_steps_alike_the_latest_is_continued_also_where_something_is_forgiven() -> None:
    one, two = example.step(sampled=[901, example.CLOSE]), example.step(sampled=[902, example.CLOSE])
    for echo, forgiven in (
        (example.assistant(), ()),
        ({**example.assistant(), "name": None}, (Forgiveness.ABSENT,)),
    ):
        prompt = [example.user(), echo, example.user("more")]
        assert used([one, two], prompt) == (two, frozenset(forgiven))
        assert used([two, one], prompt) == (one, frozenset(forgiven))


def test_a_policy_forgives_what_it_names_and_nothing_else() -> None:
    prompt = [example.user(), example.assistant("hello\n"), example.user("more")]
    forgive = Policy(forgive=[Forgiveness.TRAILING_WHITESPACE])
    assert used([SHORT], prompt, policy=forgive) == (SHORT, frozenset({Forgiveness.TRAILING_WHITESPACE}))
    refusal = locate([SHORT], prompt)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.NO_PREFIX
