"""Which messages are the same, and what a policy may forgive."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from tests.core.normalization.messages import assistant, call, calling, part
from tito_core import Forgiveness
from tito_core.normalization.canonical import normalize
from tito_core.normalization.compare import Renaming, same
from tito_core.normalization.receipts import CHOICES, OPTIONAL, Choice

F = Forgiveness


DIFFERENT = {
    "parts that are strings": (assistant(["a", "b"]), assistant(["a", "c"])),
    "a part that shows more": (assistant([part("a", image="b")]), assistant("a")),
    "a part of another type": (assistant([{"type": "refusal", "text": "a"}]), assistant("a")),
    "a part whose text is none": (assistant([part(1)]), assistant("1")),
    "two parts and their list": (assistant([part("a"), part("b")]), assistant(["a", "b"])),
    "two reasonings": (assistant(reasoning="t", reasoning_content="u"), assistant(reasoning="t")),
    "two reasonings, in turn": (
        assistant(reasoning="t", reasoning_content="u"),
        assistant(reasoning="u", reasoning_content="t"),
    ),
    "calls that are no objects": (calling("f"), calling("g")),
    "odd calls": (calling({"id": "c", "x": 1}), calling({"id": "c", "x": 2})),
    "odd calls of other ids": (calling({"id": "c", "x": 1}), calling({"id": "d", "x": 1})),
    "an odd call and none": (calling({"id": "c"}), assistant(None)),
    "arguments that are a list": (calling(call(function={"name": "f", "arguments": [1]})), calling(call())),
    "an empty list of arguments": (calling(call(function={"name": "f", "arguments": []})), calling(call())),
    "an object and an array of pairs": (assistant({"a": 1}), assistant([["a", 1]])),
    "not a number": (assistant({"a": math.inf}), assistant({"a": -math.inf})),
    "infinity and its name": (assistant({"a": math.inf}), assistant({"a": "inf"})),
    "a truth and its name": (assistant({"a": True}), assistant({"a": ["truth", True]})),
}


@pytest.mark.parametrize(("ours", "theirs"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_these_differ(ours: Any, theirs: Any) -> None:
    assert same(ours, theirs) is None
    assert same(theirs, ours) is None


WHITE = frozenset((F.OUTER_WHITESPACE,))


DROPPED = frozenset((F.DROPPED_REASONING,))


@pytest.mark.parametrize(
    ("ours", "theirs", "forgive", "receipt"),
    [
        (assistant("a "), assistant("a\n"), WHITE, WHITE),
        (assistant("a"), assistant("a"), WHITE, frozenset()),
        (assistant(" \n"), assistant(""), WHITE, WHITE),
        (assistant(reasoning="\nt"), assistant(reasoning="t"), WHITE, WHITE),
        (assistant(reasoning="\n"), assistant(), WHITE, WHITE),
        (assistant(reasoning="t"), assistant(), WHITE, None),
        (assistant(reasoning=" t"), assistant(), WHITE | DROPPED, DROPPED),
        (assistant(reasoning="\n"), assistant(), DROPPED, DROPPED),
        (assistant(), assistant(reasoning="\n"), WHITE, WHITE),
        ({"role": "user", "content": "a "}, {"role": "user", "content": "a"}, WHITE, None),
        (assistant(reasoning="t"), assistant(reasoning="t"), DROPPED, frozenset()),
        (assistant(), assistant(reasoning="t"), DROPPED, None),  # it was never thought
        ({"role": "user", "reasoning": "t"}, {"role": "user"}, DROPPED, None),
        (assistant("a ", reasoning="t"), assistant("a"), WHITE | DROPPED, WHITE | DROPPED),
        (assistant("a ", reasoning="t"), assistant("a"), WHITE, None),
        (assistant("a ", reasoning="t"), assistant("a"), DROPPED, None),
    ],
)
def test_what_a_policy_forgives_has_an_owner_and_a_direction(
    ours: Any, theirs: Any, forgive: frozenset[F], receipt: frozenset[F] | None
) -> None:
    assert same(ours, theirs, forgive) == receipt


def test_an_id_that_was_left_out_is_not_renamed() -> None:
    forgive = frozenset((F.RENAMED_TOOL_IDS,))
    named, nameless = (calling(call(id=name)) for name in ("c", None))
    assert same(named, nameless, forgive) is None
    assert same(nameless, named, forgive) is None
    assert same(nameless, nameless, forgive) == frozenset()


def test_a_number_as_an_id_is_not_the_number_of_a_call() -> None:
    renaming = Renaming(frozenset((F.RENAMED_TOOL_IDS,)))
    assert renaming.fits(*(normalize(calling(call(id=name))) for name in ("a", "x")))
    for ours, theirs, fits in ((0, "x", False), ("a", 0, False), ("a", "x", True)):
        results = ({"role": "tool", "tool_call_id": name, "content": "7"} for name in (ours, theirs))
        assert renaming.fits(*map(normalize, results)) is fits


def test_a_choice_is_off_in_the_gateway_unless_its_row_says_otherwise() -> None:
    assert not Choice(lambda _: {}).gateway
    assert {row for row in F if row.choice is not None} == OPTIONAL == CHOICES.keys()


def test_a_member_says_what_it_said_to_those_who_stored_it() -> None:
    """Pickles hold the value, data the name."""
    assert F("white space around an assistant's content or reasoning (optional)") is F.OUTER_WHITESPACE
    assert F("a key was missing on one side and None on the other") is F.ABSENT
    assert all(row.value == row.says + " (optional)" * (row in OPTIONAL) for row in F)
    assert all(pickle.loads(pickle.dumps(row)) is row for row in F)  # noqa: S301  # our own
