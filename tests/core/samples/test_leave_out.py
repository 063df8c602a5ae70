"""Which calls the options leave out, by example."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.core.samples.calls import call
from tests.core.samples.row_sets import CHAIN, LEFT, ROOT, missing, shown
from tito_core.samples.forest import Forest
from tito_core.samples.options import (
    Retries,
    SampleOptions,
    TurnRule,
)
from tito_core.samples.rows import make_rows


@pytest.mark.parametrize(
    ("rule", "rows", "untrained"),
    [
        (TurnRule.KEEP, {"c": "1 [2] [3] 4 [5] [6] 2 7 [8]"}, []),
        (TurnRule.MASK, {"c": "1 [2] [3] 4 5 6 2 7 [8]"}, [("b", 0, 2, "MASKED")]),
        (TurnRule.END, {"b": "1 [2] [3] 4 [5] [6]"}, [("c", 0, 1, "AFTER_END")]),
        (TurnRule.DROP, {"a": "1 [2] [3]"}, [("b", 0, 2, "DROPPED"), ("c", 0, 1, "DROPPED")]),
    ],
)
@pytest.mark.parametrize("kind", ["truncated", "aborted"])
def test_a_cut_turn_in_the_middle(
    kind: str, rule: TurnRule, rows: dict[str, str], untrained: list[Any]
) -> None:
    reason = {"truncated": "length", "aborted": "abort"}[kind]
    calls = [attrs.evolve(one, finish_reason=reason) if one.name == "b" else one for one in CHAIN.calls]
    chosen: dict[str, Any] = {kind: rule}
    row_set = make_rows(Forest.of(calls), SampleOptions(**chosen))
    assert shown(row_set) == rows
    assert missing(row_set) == untrained
    assert row_set.rows[0].turns[-1].call == row_set.rows[0].name


def test_an_option_for_one_ending_leaves_other_endings_alone() -> None:
    assert shown(make_rows(CHAIN, SampleOptions(aborted=TurnRule.DROP))) == shown(make_rows(CHAIN))


def test_an_empty_call_is_a_node_and_gives_no_row() -> None:
    forest = Forest.of([ROOT, call("b", [1, 2, 3, 4], [])])
    assert shown(make_rows(forest)) == {"a": "1 [2] [3]"}
    kept = make_rows(forest, SampleOptions(empty=TurnRule.KEEP))
    assert shown(kept) == {"b": "1 [2] [3] 4"}
    assert kept.untrained == ()
    alone = make_rows(Forest.of([call("b", [1], [])]), SampleOptions(empty=TurnRule.KEEP))
    assert (alone.rows, alone.untrained, alone.without_row) == ((), (), ("b",))


def test_the_newest_retry_is_one_that_stays() -> None:
    """Neither an empty call nor a turn that is left out pushes a good one aside."""
    cut = call("c", [1, 2, 3, 4], [6], truncated=True)
    forest = Forest.of([ROOT, LEFT, cut, call("d", [1, 2, 3, 4], [])])
    row_set = make_rows(
        forest, SampleOptions(retries=Retries.NEWEST, truncated=TurnRule.DROP, empty=TurnRule.KEEP)
    )
    assert shown(row_set) == {"b": "1 [2] [3] 4 [5]"}
    assert missing(row_set) == [("c", 0, 1, "DROPPED")]
    assert row_set.without_row == ("d",)


RETRIED = Forest.of([ROOT, LEFT, call("c", [1, 2, 3, 4], [6]), call("d", [1, 2, 3, 4, 5, 8], [9])])


@pytest.mark.parametrize(
    ("retries", "rows", "untrained"),
    [
        (Retries.ALL, {"c": "1 [2] [3] 4 [6]", "d": "1 2 3 4 [5] 8 [9]"}, []),
        (Retries.NEWEST, {"c": "1 [2] [3] 4 [6]"}, [("b", 0, 1, "RETRIED"), ("d", 0, 1, "RETRIED")]),
        (Retries.EXTENDED, {"d": "1 [2] [3] 4 [5] 8 [9]"}, [("c", 0, 1, "RETRIED")]),
    ],
)
def test_two_replies_to_one_prompt(retries: Retries, rows: dict[str, str], untrained: list[Any]) -> None:
    row_set = make_rows(RETRIED, SampleOptions(retries=retries))
    assert shown(row_set) == rows
    assert missing(row_set) == untrained
