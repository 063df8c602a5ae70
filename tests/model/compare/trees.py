"""Forests and rows: stored calls of a rollout, put to the kernel and to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.model import forest, rows
from tests.model.compare.picks import Picks
from tests.model.compare.verdict import Verdict
from tito_core.errors import InputError
from tito_core.samples import (
    ConversationScope,
    Cut,
    Forest,
    Owner,
    Retries,
    Rewards,
    RowPer,
    SampleOptions,
    StoredCall,
    TurnRule,
    make_rows,
)
from tito_core.testing.strategies.stored_call import grown


def calls(picks: Picks) -> list[StoredCall]:
    """Return calls that continue, repeat, rewrite or compact each other, or are cut, empty or equal."""
    count = picks.pick(range(1, 8))
    orders: Sequence[int] = picks.pick(
        (range(count), [0] * count, range(count, 0, -1), [3, 1, 4, 1, 5, 9, 2])
    )
    found: list[StoredCall] = []
    for number in range(count):
        found.append(grown(number, orders[number], found, picks, picks))
    missing = picks.pick(range(3 * count))
    return [call for number, call in enumerate(found) if number != 3 * count - 1 - missing] or found


def options(picks: Picks) -> SampleOptions:
    """Return what a trainer chose."""
    reward = picks.pick(tuple(Rewards))
    return SampleOptions(
        rows=picks.pick((RowPer.LEAF, RowPer.LEAF, RowPer.CALL)),
        owner=picks.pick(tuple(Owner)),
        max_length=picks.pick((None, None, None, 1, 4, 7, 10, 15, 25)),
        cut=picks.pick(tuple(Cut)),
        rewards=reward,
        discount=0.5 if reward is Rewards.DISCOUNTED else None,
        conversation=picks.pick(tuple(ConversationScope)),
        truncated=picks.pick(tuple(TurnRule)),
        aborted=picks.pick(tuple(TurnRule)),
        empty=picks.pick((TurnRule.DROP, *TurnRule)),
        retries=picks.pick(tuple(Retries)),
    )


def compared(data: bytes) -> tuple[Verdict, list[StoredCall], SampleOptions]:
    """Return what kernel and model make of the calls that bytes describe."""
    picks = Picks(data)
    chosen, stored = options(picks) if picks.pick((False, True, True)) else SampleOptions(), calls(picks)
    grown_forest = Forest.of(stored)
    for node in grown_forest.nodes:
        above = forest.parent(node.call, stored)
        ours = (node.parent, node.kind.name, node.of)
        theirs = (above.name if above else None, *forest.explained(node.call, stored))
        if ours != theirs:
            return (
                Verdict("DISAGREED", f"forest, call {node.name}: the kernel says {ours}, the model {theirs}"),
                stored,
                chosen,
            )
    leaves = [row.call.name for row in rows.rows(stored, chosen)[0]]
    only = picks.pick((None, None, leaves[::2], leaves[1:]))
    try:
        found = make_rows(grown_forest, chosen, only=only)
    except InputError:  # rewards of one conversation that contradict each other, or turns of one time
        return Verdict("refused with care", "INPUT"), stored, chosen
    return row_verdict(found, rows.rows(stored, chosen, only)), stored, chosen


def row_verdict(found: Any, model: tuple[list[rows.Row], list[rows.Untrained]]) -> Verdict:
    """Compare all rows, id by id."""
    expected, untrained = model
    names = [row.name for row in found.rows], [row.call.name for row in expected]
    if names[0] != names[1]:
        return Verdict("DISAGREED", f"rows: the kernel has {names[0]}, the model {names[1]}")
    for ours, theirs in zip(found.rows, expected, strict=True):
        writers = [(s.origin.name, s.call, s.weights) for s in ours.ledger for _ in range(s.start, s.stop)]
        pairs = {
            "ids": (ours.ids.tolist(), theirs.ids),
            "mask": (list(ours.loss_mask), theirs.mask),
            "log-probabilities": (list(ours.logprobs), theirs.logprobs),
            "writers": (writers, theirs.writers),
            "reward": (ours.reward, theirs.reward),
            "weight": (round(ours.weight, 9), round(theirs.weight, 9)),
        }
        for name, (left, right) in pairs.items():
            if left != right:
                return Verdict(
                    "DISAGREED", f"row {ours.name}, {name}: the kernel says {left}, the model {right}"
                )
    missing = [(one.call, one.start, one.stop, one.why.name) for one in found.untrained]
    if missing != untrained:
        return Verdict("DISAGREED", f"untrained: the kernel says {missing}, the model {untrained}")
    return Verdict("agreed")
