"""Rows by example: what each option does to a small forest."""

from __future__ import annotations

import tracemalloc
from typing import Any

import attrs
import pytest

from tests.core.samples.test_forest import call, rollout
from tito_core import InputError, Ledger, Origin, Step
from tito_core.samples.call import StoredCall
from tito_core.samples.experts import MissingRow, RoutedExperts, gathered
from tito_core.samples.forest import Forest
from tito_core.samples.options import (
    ConversationScope,
    Cut,
    Owner,
    Retries,
    Rewards,
    RowPer,
    SampleOptions,
    TurnRule,
)
from tito_core.samples.row import Row
from tito_core.samples.rows import RowSet, make_rows
from tito_core.samples.weights import WeightVersion

ROOT = call("a", [1], [2, 3], reward=1.0)
LEFT = call("b", [1, 2, 3, 4], [5])
RIGHT = call("c", [1, 2, 3, 6], [7, 8])
FORK = Forest.of([ROOT, LEFT, RIGHT])


def shown(made: RowSet) -> dict[str, str]:
    """Return each row's ids, those that train in brackets."""
    return {row.name: " ".join(map(_shown, row.ids, row.loss_mask)) for row in made.rows}


def _shown(number: int, bit: int) -> str:
    return f"[{number}]" if bit else str(number)


def missing(made: RowSet) -> list[tuple[str, int, int, str]]:
    return [(one.call, one.start, one.stop, one.why.name) for one in made.untrained]


@pytest.mark.parametrize(
    ("owner", "rows"),
    [
        (Owner.FIRST, {"b": "1 [2] [3] 4 [5]", "c": "1 2 3 6 [7] [8]"}),
        (Owner.LAST, {"b": "1 2 3 4 [5]", "c": "1 [2] [3] 6 [7] [8]"}),
        (Owner.LONGEST, {"b": "1 2 3 4 [5]", "c": "1 [2] [3] 6 [7] [8]"}),
    ],
)
def test_shared_ids_train_in_one_branch(owner: Owner, rows: dict[str, str]) -> None:
    assert shown(make_rows(FORK, SampleOptions(owner=owner))) == rows


def test_of_equally_long_branches_the_first_owns() -> None:
    forest = Forest.of([ROOT, LEFT, call("c", [1, 2, 3, 6], [7])])
    made = make_rows(forest, SampleOptions(owner=Owner.LONGEST))
    assert shown(made) == {"b": "1 [2] [3] 4 [5]", "c": "1 2 3 6 [7]"}


def test_the_longest_branch_is_the_longest_before_it_is_cut() -> None:
    made = make_rows(FORK, SampleOptions(owner=Owner.LONGEST, max_length=4, cut=Cut.INSIDE))
    assert shown(made) == {"c": "1 [2] [3] 6"}
    assert made.without_row == ("b",)


def test_a_row_per_call_trains_its_completion() -> None:
    made = make_rows(FORK, SampleOptions(rows=RowPer.CALL))
    assert shown(made) == {"a": "1 [2] [3]", "b": "1 2 3 4 [5]", "c": "1 2 3 6 [7] [8]"}
    assert [row.weight for row in made.rows] == [2 / 5, 1 / 5, 2 / 5]


def test_what_an_unwanted_leaf_owned_moves() -> None:
    made = make_rows(FORK, only=["c"])
    assert shown(made) == {"c": "1 [2] [3] 6 [7] [8]"}
    assert missing(made) == [("b", 0, 1, "NOT_ASKED_FOR")]
    assert made.rows[0].weight == 1.0
    assert missing(make_rows(FORK, only=[])) == [
        ("a", 0, 2, "NOT_ASKED_FOR"),
        ("b", 0, 1, "NOT_ASKED_FOR"),
        ("c", 0, 2, "NOT_ASKED_FOR"),
    ]


def test_only_names_leaves() -> None:
    with pytest.raises(InputError, match="only names 'a', which others continue"):
        make_rows(FORK, only=["a"])
    with pytest.raises(InputError, match="'x' is none of 3 calls"):
        make_rows(FORK, only=["x"])
    assert shown(make_rows(FORK, SampleOptions(rows=RowPer.CALL), only=["a"])) == {"a": "1 [2] [3]"}


CUT = call("b", [1, 2, 3, 4], [5, 6], truncated=True, finish_reason="length")
CHAIN = Forest.of([ROOT, CUT, call("c", [1, 2, 3, 4, 5, 6, 2, 7], [8])])


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
    made = make_rows(Forest.of(calls), SampleOptions(**chosen))
    assert shown(made) == rows
    assert missing(made) == untrained
    assert made.rows[0].turns[-1].call == made.rows[0].name


def test_one_kind_of_ending_is_not_the_other() -> None:
    assert shown(make_rows(CHAIN, SampleOptions(aborted=TurnRule.DROP))) == shown(make_rows(CHAIN))


def test_an_empty_call_is_a_node_and_gives_no_row() -> None:
    forest = Forest.of([ROOT, call("b", [1, 2, 3, 4], [])])
    assert shown(make_rows(forest)) == {"a": "1 [2] [3]"}
    kept = make_rows(forest, SampleOptions(empty=TurnRule.KEEP))
    assert shown(kept) == {"b": "1 [2] [3] 4"}
    assert kept.untrained == ()
    alone = make_rows(Forest.of([call("b", [1], [])]), SampleOptions(empty=TurnRule.KEEP))
    assert (alone.rows, alone.untrained, alone.without_row) == ((), (), ("b",))


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
    made = make_rows(RETRIED, SampleOptions(retries=retries))
    assert shown(made) == rows
    assert missing(made) == untrained


def test_where_no_retry_was_extended_the_newest_counts() -> None:
    forest = Forest.of([ROOT, LEFT, call("c", [1, 2, 3, 4], [6])])
    assert shown(make_rows(forest, SampleOptions(retries=Retries.EXTENDED))) == {"c": "1 [2] [3] 4 [6]"}


def test_the_newest_retry_is_one_that_stays() -> None:
    """Neither an empty call nor a turn that is left out pushes a good one aside."""
    cut = call("c", [1, 2, 3, 4], [6], truncated=True)
    forest = Forest.of([ROOT, LEFT, cut, call("d", [1, 2, 3, 4], [])])
    made = make_rows(
        forest, SampleOptions(retries=Retries.NEWEST, truncated=TurnRule.DROP, empty=TurnRule.KEEP)
    )
    assert shown(made) == {"b": "1 [2] [3] 4 [5]"}
    assert missing(made) == [("c", 0, 1, "DROPPED")]
    assert made.without_row == ("d",)


@pytest.mark.parametrize(
    ("cut", "most", "rows", "untrained"),
    [
        (Cut.AT_TURN, 8, {"c": "1 [2] [3] 4 [5] [6]"}, [("c", 0, 1, "TOO_LONG")]),
        (Cut.INSIDE, 8, {"c": "1 [2] [3] 4 [5] [6] 2 7"}, [("c", 0, 1, "TOO_LONG")]),
        (Cut.AT_TURN, 5, {"c": "1 [2] [3]"}, [("b", 0, 2, "TOO_LONG"), ("c", 0, 1, "TOO_LONG")]),
        (Cut.INSIDE, 5, {"c": "1 [2] [3] 4 [5]"}, [("b", 1, 2, "TOO_LONG"), ("c", 0, 1, "TOO_LONG")]),
        (Cut.AT_TURN, 2, {}, [("a", 0, 2, "TOO_LONG"), ("b", 0, 2, "TOO_LONG"), ("c", 0, 1, "TOO_LONG")]),
        (Cut.INSIDE, 9, {"c": "1 [2] [3] 4 [5] [6] 2 7 [8]"}, []),
    ],
)
def test_a_row_ends_at_the_maximum(cut: Cut, most: int, rows: dict[str, str], untrained: list[Any]) -> None:
    made = make_rows(CHAIN, SampleOptions(max_length=most, cut=cut))
    assert shown(made) == rows
    assert missing(made) == untrained
    assert [row.left_out for row in made.rows] == [9 - len(row) for row in made.rows]
    assert made.without_row == (() if rows else ("c",))


def test_a_replaced_stop_trains_in_a_row_of_its_own() -> None:
    forest = Forest.of([ROOT, call("b", [1, 2, 9, 4], [5])])
    assert shown(make_rows(forest)) == {"a": "1 [2] [3]", "b": "1 2 9 4 [5]"}


def test_every_id_says_where_it_comes_from() -> None:
    ledger = (
        Ledger.prompt(1)
        .then((Origin.SAMPLED, 2))
        .then((Origin.INSERTED_CLOSE, 1), (Origin.ENVIRONMENT, 1), (Origin.GENERATION_PROMPT, 1))
    )
    step = Step(
        prompt=[],
        completion=[],
        prompt_ids=[1, 2, 3, 4, 5, 6],
        completion_ids=[7, 8, 9],
        prompt_ledger=ledger,
    )
    versions = [WeightVersion(version="v1", start=0, stop=1), WeightVersion(version="v2", start=1, stop=2)]
    second = StoredCall(
        name="b", step=step, weight_versions=versions, finish_reason="tool_calls", metadata={"x": 1}
    )
    [row] = make_rows(Forest.of([ROOT, second])).rows
    assert [(s.origin.name, s.start, s.stop, s.call, s.weights, s.trained) for s in row.ledger] == [
        ("PROMPT", 0, 1, "a", None, False),
        ("SAMPLED", 1, 3, "a", None, True),
        ("INSERTED_CLOSE", 3, 4, "b", None, False),
        ("ENVIRONMENT", 4, 5, "b", None, False),
        ("GENERATION_PROMPT", 5, 6, "b", None, False),
        ("SAMPLED", 6, 7, "b", "v1", True),
        ("SAMPLED", 7, 8, "b", "v2", True),
        ("SAMPLED", 8, 9, "b", None, True),
    ]
    assert [(t.call, t.start, t.stop, t.finish_reason, t.trained) for t in row.turns] == [
        ("a", 1, 3, None, True),
        ("b", 6, 9, "tool_calls", True),
    ]
    assert row.metadata == {"x": 1}
    assert repr(row) == "Row('b', 9 ids, 5 of them trained)"


def test_ids_that_no_call_of_the_forest_sampled_do_not_train() -> None:
    """A prompt's ledger may know of a turn whose call was not given."""
    step = attrs.evolve(LEFT.step, prompt_ledger=Ledger.of([(Origin.PROMPT, 1), (Origin.SAMPLED, 3)]))
    [row] = make_rows(Forest.of([StoredCall(name="b", step=step)])).rows
    assert [(span.origin.name, span.call, span.trained) for span in row.ledger] == [
        ("PROMPT", "b", False),
        ("SAMPLED", None, False),
        ("SAMPLED", "b", True),
    ]


def test_a_missing_logprob_is_none() -> None:
    first = attrs.evolve(ROOT, step=attrs.evolve(ROOT.step, logprobs=[-0.5, None]))
    forest = Forest.of([first, LEFT, RIGHT])
    made = make_rows(forest, SampleOptions(truncated=TurnRule.MASK))
    assert [row.logprobs for row in made.rows] == [
        (None, -0.5, None, None, None),
        (None, -0.5, None, None, None, None),
    ]


# --- rewards and weights --------------------------------------------------------------------------------

OTHER = call("x", [9], [9])


@pytest.mark.parametrize(
    ("options", "rewards", "weights"),
    [
        (SampleOptions(), [1.0, 1.0, 1.0], [3 / 6, 2 / 6, 1 / 6]),
        (SampleOptions(conversation=ConversationScope.TREE), [1.0, 1.0, None], [3 / 5, 2 / 5, 1.0]),
        (SampleOptions(rewards=Rewards.PER_LEAF), [None, None, None], [3 / 6, 2 / 6, 1 / 6]),
        (
            SampleOptions(rewards=Rewards.PER_LEAF, rows=RowPer.CALL),
            [1.0, None, None, None],
            [2 / 6, 1 / 6, 2 / 6, 1 / 6],
        ),
    ],
)
def test_rewards_and_weights(options: SampleOptions, rewards: list[Any], weights: list[float]) -> None:
    made = make_rows(FORK.add(OTHER), options)
    assert [row.reward for row in made.rows] == rewards
    assert [row.weight for row in made.rows] == pytest.approx(weights)
    assert {row.tree for row in made.rows} == {"a", "x"}


def test_two_rewards_are_not_one() -> None:
    forest = FORK.add(attrs.evolve(OTHER, reward=0.0))
    with pytest.raises(
        InputError, match=r"calls 'a' and 'x' of one conversation have the rewards 1\.0 and 0\.0"
    ):
        make_rows(forest)
    trees = make_rows(forest, SampleOptions(conversation=ConversationScope.TREE))
    assert [row.reward for row in trees.rows] == [1.0, 1.0, 0.0]
    leaves = make_rows(forest, SampleOptions(rewards=Rewards.PER_LEAF))
    assert [row.reward for row in leaves.rows] == [None, None, 0.0]
    assert [row.reward for row in make_rows(FORK.add(attrs.evolve(OTHER, reward=1))).rows] == [1.0, 1.0, 1.0]


# --- routed experts -------------------------------------------------------------------------------------


def rows(start: int, *numbers: int, dtype: str = "uint16") -> RoutedExperts:
    """Return rows of two numbers, each row a number twice."""
    data = b"".join(number.to_bytes(2, "little") * 2 for number in numbers)
    return RoutedExperts(data=data, dtype=dtype, shape=(len(numbers), 1, 2), start=start)


def routed(*experts: RoutedExperts | None, missing: MissingRow = MissingRow.SHORTER, **more: Any) -> Row:
    """Return the row of two turns, five ids."""
    calls = [attrs.evolve(one, routed_experts=sent) for one, sent in zip((ROOT, LEFT), experts, strict=True)]
    [row] = make_rows(Forest.of(calls), SampleOptions(missing_row=missing, **more)).rows
    return row


def numbers(row: Row) -> list[int]:
    assert row.experts is not None
    found = memoryview(row.experts.data).cast("H").tolist()
    assert found[::2] == found[1::2]
    assert row.experts.shape == (len(found) // 2, 1, 2)
    assert row.experts.dtype == "uint16"
    return found[::2]


@pytest.mark.parametrize(
    ("first", "second", "missing", "found", "valid"),
    [
        (rows(0, 1, 2), rows(0, 91, 92, 3, 4), MissingRow.SHORTER, [1, 2, 3, 4], ((0, 4),)),
        (rows(0, 1, 2), rows(0, 91, 92, 3, 4), MissingRow.PAD, [1, 2, 3, 4, 0], ((0, 4),)),
        (rows(0, 1, 2), rows(0, 91, 92, 3, 4), MissingRow.REPEAT, [1, 2, 3, 4, 4], ((0, 4),)),
        (rows(0, 1, 2), rows(3, 4), MissingRow.SHORTER, [1, 2, 0, 4], ((0, 2), (3, 4))),
        (rows(0, 1, 2), rows(3, 4), MissingRow.REPEAT, [1, 2, 2, 4, 4], ((0, 2), (3, 4))),
        (rows(1, 2), rows(0, 91, 92, 93, 94), MissingRow.SHORTER, [91, 2, 93, 94], ((0, 4),)),
        (rows(1, 2), None, MissingRow.REPEAT, [0, 2, 2, 2, 2], ((1, 2),)),
        (None, rows(0, 1, 2, 3, 4, 5), MissingRow.SHORTER, [1, 2, 3, 4, 5], ((0, 5),)),
        (rows(0), None, MissingRow.SHORTER, [], ()),
        (rows(0), None, MissingRow.PAD, [0, 0, 0, 0, 0], ()),
    ],
)
def test_routed_experts_stand_at_their_ids(
    first: RoutedExperts | None,
    second: RoutedExperts | None,
    missing: MissingRow,
    found: list[int],
    valid: tuple[tuple[int, int], ...],
) -> None:
    row = routed(first, second, missing=missing)
    assert numbers(row) == found
    assert row.experts is not None
    assert row.experts.valid == valid


def test_routed_experts_end_with_the_row() -> None:
    row = routed(rows(0, 1, 2), rows(0, 91, 92, 3, 4), max_length=3, missing=MissingRow.PAD)
    assert (len(row), numbers(row)) == (3, [1, 2, 3])


def test_no_routed_experts_are_none() -> None:
    assert routed(None, None).experts is None
    assert gathered([], 3, MissingRow.PAD) is None


def test_routed_experts_of_two_kinds_do_not_mix() -> None:
    with pytest.raises(
        InputError, match=r"call 'b' has routed experts of \('int16', \(1, 2\)\), call 'a' of"
    ):
        routed(rows(0, 1, 2), rows(0, 1, 2, dtype="int16"))


def test_rows_that_come_in_any_pieces_are_put_together_once() -> None:
    pieces = [("a", rows(start, start + 1)) for start in (5, 1, 3, 5, 0, 1)] + [("b", rows(2, 93, 94, 95))]
    table = gathered(pieces, 7, MissingRow.SHORTER)
    assert table is not None
    assert memoryview(table.data).cast("H").tolist()[::2] == [1, 2, 93, 4, 95, 6]
    assert table.valid == ((0, 6),)


# --- options and cost -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_length": 0}, "max_length is 0"),
        ({"max_length": True}, "max_length is True"),
        ({"max_length": "9"}, "max_length is '9'"),
        ({"owner": "first"}, "owner is 'first': give one of Owner.FIRST, Owner.LAST, Owner.LONGEST"),
        ({"truncated": Cut.INSIDE}, "truncated is .*: give one of TurnRule.KEEP"),
        ({"rows": None}, "rows is None: give one of RowPer.LEAF, RowPer.CALL"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        SampleOptions(**change)


def test_an_empty_forest_has_no_rows() -> None:
    assert make_rows(Forest.of([])) == RowSet(rows=(), untrained=(), without_row=())


def test_rows_hold_at_most_sixty_four_bytes_an_id() -> None:
    """With what is said of every turn, of turns as short as twenty sampled ids."""
    forest = Forest.of(rollout(200, size=20))
    for options in (SampleOptions(), SampleOptions(rows=RowPer.CALL)):
        tracemalloc.start()
        made = make_rows(forest, options)
        bytes_in_use, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert bytes_in_use <= 64 * sum(map(len, made.rows))
