"""What a row says of each id: who wrote it, its log-probability, its size in memory."""

from __future__ import annotations

import tracemalloc

import attrs
import pytest

from tests.core.samples.calls import rollout
from tests.core.samples.row_sets import LEFT, RIGHT, ROOT
from tito_core import Ledger, Origin, Step
from tito_core.samples.call import StoredCall, WeightVersion
from tito_core.samples.forest import Forest
from tito_core.samples.options import (
    RowPer,
    SampleOptions,
    TurnRule,
)
from tito_core.samples.rows import make_rows


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
    row_set = make_rows(forest, SampleOptions(truncated=TurnRule.MASK))
    assert [row.logprobs for row in row_set.rows] == [
        (None, -0.5, None, None, None),
        (None, -0.5, None, None, None, None),
    ]


@pytest.mark.whole
def test_rows_hold_at_most_sixty_four_bytes_an_id() -> None:
    """Spans and turns included, with turns of as few as twenty sampled ids."""
    forest = Forest.of(rollout(200, size=20))
    for options in (SampleOptions(), SampleOptions(rows=RowPer.CALL)):
        tracemalloc.start()
        row_set = make_rows(forest, options)
        bytes_in_use, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert bytes_in_use <= 64 * sum(map(len, row_set.rows))
