"""The summary of a run, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from io import StringIO

from rich.console import Console

from tito_io.samples.rows import FileTally, Tally

ROWS = FileTally(
    conversations=1,
    calls=2000,
    sampled_ids=1510,
    rows=4,
    row_ids=5,
    trained_ids=8,
    untrained_ids=Counter(too_long=1500, masked=2),
    leaves_without_row=7,
    problems=9,
)


def shown(tally: Tally) -> list[str]:
    """Return the lines of a table, without the white space at their ends."""
    console = Console(file=StringIO(), width=100)
    with console.capture() as caught:
        console.print(tally.table("log.jsonl"))
    return [line.rstrip() for line in caught.get().splitlines()]


def test_a_table_has_a_line_for_each_figure_and_each_reason() -> None:
    assert shown(ROWS) == [
        "log.jsonl",
        "",
        " conversations            1",
        " calls                2,000",
        " sampled ids          1,510",
        " rows                     4",
        " row ids                  5   in all rows",
        " trained ids              8   each in one row",
        " untrained ids        1,502   sampled, but trained in no row",
        "   masked                 2   an option keeps turns that ended so and does not train them",
        "   too_long           1,500   they are beyond the maximum length",
        " leaves without row       7   would train nothing",
        " problems                 9   see the lines above",
        "",
    ]


def test_json_has_the_figures_by_their_names() -> None:
    assert ROWS.to_json() == {
        "conversations": 1,
        "calls": 2000,
        "sampled_ids": 1510,
        "rows": 4,
        "row_ids": 5,
        "trained_ids": 8,
        "untrained_ids": {"masked": 2, "too_long": 1500},
        "leaves_without_row": 7,
        "problems": 9,
    }
    assert list(ROWS.to_json()["untrained_ids"]) == ["masked", "too_long"]


def test_tallies_add_up() -> None:
    whole = FileTally(untrained_ids=Counter(masked=1))
    whole.join(ROWS)
    whole.join(ROWS)
    assert whole.to_json() == {
        name: {"masked": 5, "too_long": 3000} if name == "untrained_ids" else 2 * count
        for name, count in ROWS.to_json().items()
    }


def test_a_run_that_left_out_all_ids_says_why() -> None:
    untrained = Counter(dropped=400, masked=600)
    tally = FileTally(problems=1, calls=1, sampled_ids=1000, untrained_ids=untrained)
    assert tally.no_rows_reason == (
        "no rows: all 1,000 sampled ids are left out (dropped 400: an option leaves out turns that ended so, "
        "and what continues them; masked 600: an option keeps turns that ended so and does not train them)"
    )
