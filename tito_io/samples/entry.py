"""A training row with its place in the stored file, and its plain columns, which every file of rows has.

`ids` and `loss_mask` are lists of numbers, `logprobs` has null for ids without one, `spans` and `turns` are
lists of objects, `metadata` is JSON in a string, so that all rows have the same columns. Rows are ordered by
`line` and `place`. Routed experts are bytes here, and the ids of a sampling mask an array of 32 bits; JSON
lines write both as base64.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from enum import Enum
from itertools import chain
from typing import Any

import attrs
import orjson

from tito_core import Ids, InputError
from tito_core.samples import Forest, Row, RowSet, RowSpan, RowTurn, SampleOptions, make_rows

from .read import StoredConversation

HIGHEST = 2**31 - 1
"""The highest id in a column of 32 bits, which Hugging Face `datasets` reads as signed."""
GROUP_FIELDS = ("group", "example_id", "task")
"""Metadata of calls that name the group of a rollout; the first that is there counts.

`example_id` and `task` are those of verifiers' results and traces.
"""


@attrs.frozen(kw_only=True)
class Entry:
    """One row of a file.

    Attributes:
        conversation: The name of its conversation.
        line: The first line of the conversation in the stored file, counted from 1.
        place: Its position among the conversation's rows, counted from 0.
        row: The row.
        group: The task whose rollouts are compared, by the calls' metadata; None where they name none.
    """

    conversation: str
    line: int
    place: int
    row: Row
    group: str | None = None


def entries(stored: StoredConversation, options: SampleOptions) -> tuple[list[Entry], RowSet]:
    """Return the rows of a conversation, and the whole result of the kernel; raises its `InputError`."""
    row_set, group = make_rows(stored.forest, options), group_of(stored.forest)
    rows = [
        Entry(conversation=stored.name, line=stored.first, place=place, row=row, group=group)
        for place, row in enumerate(row_set.rows)
    ]
    return rows, row_set


def group_of(forest: Forest) -> str | None:
    """Return the group of a rollout; raises `InputError` if its calls name two."""
    for field in GROUP_FIELDS:
        named = [value for call in forest.calls if (value := call.metadata.get(field)) is not None]
        groups = list(dict.fromkeys(map(str, named)))
        if len(groups) > 1:
            raise InputError(
                f"its calls have the groups {groups[0]!r:.60} and {groups[1]!r:.60} in metadata.{field}: "
                "give one to all"
            )
        if groups:
            return groups[0]
    return None


def to_columns(entry: Entry) -> dict[str, Any]:
    """Return a row as plain data; raises `InputError` for an id above 2**31 - 1 or metadata beyond JSON."""
    row, experts = entry.row, entry.row.experts
    ids = plain_ids(row)
    try:
        metadata = orjson.dumps(row.metadata).decode()
    except TypeError as error:
        raise InputError(f"row {row.name!r:.60}: its metadata cannot be written: {error}") from None
    return {
        "conversation": entry.conversation,
        "group": entry.group,
        "line": entry.line,
        "place": entry.place,
        "name": row.name,
        "ids": ids,
        "loss_mask": list(row.loss_mask),
        "logprobs": list(row.logprobs),
        "processed_logprobs": row.processed_logprobs,
        "sampling_mask": flat_mask(row),
        "spans": [_plain(span) for span in row.ledger],
        "turns": [_plain(turn) for turn in row.turns],
        "media": [{**attrs.asdict(one), "collapsed": list(one.collapsed)} for one in row.media],
        "experts": None
        if experts is None
        else {
            "data": experts.data,
            "dtype": experts.dtype,
            "shape": list(experts.shape),
            "valid": [{"start": start, "stop": stop} for start, stop in experts.valid],
            "corrected": [{"start": start, "stop": stop} for start, stop in experts.corrected],
        },
        "left_out": row.left_out,
        "reward": None if row.reward is None else float(row.reward),
        "weight": row.weight,
        "tree": row.tree,
        "follows": row.follows,
        "agent": row.agent.name.lower(),
        "auxiliary": row.auxiliary,
        "metadata": metadata,
    }


def plain_ids(row: Row) -> list[int]:
    """Return a row's ids; raises `InputError` for one above 2**31 - 1."""
    return signed(row, row.ids).tolist()


def flat_mask(row: Row, start: int = 0) -> dict[str, Any] | None:
    """Return the sampling mask of the positions from `start` on, before which no id is sampled.

    `ids` are the kept ids of all positions, `counts` how many belong to each. None for a row without a mask.
    Raises `InputError` for an id above 2**31 - 1.
    """
    mask = row.sampling_mask
    if mask is None:
        return None
    return {"ids": signed(row, mask.ids), "counts": mask.counts.tolist()[start:]}


def signed(row: Row, ids: Ids) -> array[int]:
    """Return ids as signed numbers of 32 bits; raises `InputError` for one above 2**31 - 1."""
    numbers = array("i", ids.tobytes())
    if min(numbers, default=0) < 0:
        raise InputError(
            f"row {row.name!r:.60} has the id {max(ids)}: the highest that files hold is {HIGHEST}"
        )
    return numbers


def check_finite(row: Row, logprobs: Sequence[float | None]) -> None:
    """Demand that a row's rewards and the `logprobs` that become JSON are finite; raises `InputError`."""
    # JSON has no word for infinite and undefined numbers, and orjson would write null.
    rewards = chain.from_iterable((turn.reward, turn.reward_to_go) for turn in row.turns)
    if not all(map(math.isfinite, filter(None, (row.reward, *rewards, *logprobs)))):
        raise InputError(f"row {row.name!r:.60} has a number that is not finite: write .parquet")


def _plain(value: RowSpan | RowTurn) -> dict[str, Any]:
    """Return the fields in their order, enumerations by name."""
    fields = attrs.asdict(value, recurse=False)
    return {name: one.name.lower() if isinstance(one, Enum) else one for name, one in fields.items()}
