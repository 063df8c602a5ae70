"""A training row with where it comes from: what every file of rows holds, as plain columns.

`ids` and `loss_mask` are lists of numbers, `logprobs` has null where there is none, `spans` and `turns` are
lists of objects, `metadata` is JSON in a string, so that all rows have the same columns. Rows are ordered by
`line` and `place`. Bytes of routed experts stay bytes here; JSON lines write them as base64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

import attrs
import orjson

from tito_core import Ids, InputError, Origin
from tito_core.samples import Ending, Row, RowExperts, RowSet, RowSpan, RowTurn, SampleOptions, make_rows

from .read import StoredConversation

E = TypeVar("E", bound=Enum)
HIGHEST = 2**31 - 1
"""The highest id that a column of 32 bits takes, signed as Hugging Face datasets have it."""


@attrs.frozen(kw_only=True)
class Entry:
    """One row of a file."""

    conversation: str
    line: int
    """Where the conversation begins in the file that it was read from, counted from 1."""
    place: int
    """Which of the conversation's rows it is, counted from 0."""
    row: Row


def entries(found: StoredConversation, options: SampleOptions) -> tuple[list[Entry], RowSet]:
    """Return the rows of a conversation, and what the kernel says of it; raises its `InputError`."""
    made = make_rows(found.forest, options)
    rows = [
        Entry(conversation=found.name, line=found.first, place=place, row=row)
        for place, row in enumerate(made.rows)
    ]
    return rows, made


def to_columns(entry: Entry) -> dict[str, Any]:
    """Return a row as plain data; raises `InputError` for an id above 2**31 - 1 or metadata beyond JSON."""
    row = entry.row
    ids = row.ids.tolist()
    if ids and max(ids) > HIGHEST:
        raise InputError(f"row {row.name!r:.60} has the id {max(ids)}, above {HIGHEST}: no column takes it")
    return {
        "conversation": entry.conversation,
        "line": entry.line,
        "place": entry.place,
        "name": row.name,
        "ids": ids,
        "loss_mask": list(row.loss_mask),
        "logprobs": list(row.logprobs),
        "spans": [_plain(span) for span in row.ledger],
        "turns": [_plain(turn) for turn in row.turns],
        "experts": None if row.experts is None else _experts(row.experts),
        "left_out": row.left_out,
        "reward": None if row.reward is None else float(row.reward),
        "weight": row.weight,
        "tree": row.tree,
        "metadata": _json(row),
    }


def _plain(value: RowSpan | RowTurn) -> dict[str, Any]:
    """Return the fields in their order, enumerations by name."""
    held = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    return {name: one.name.lower() if isinstance(one, Enum) else one for name, one in held.items()}


def _experts(experts: RowExperts) -> dict[str, Any]:
    return {
        "data": experts.data,
        "dtype": experts.dtype,
        "shape": list(experts.shape),
        "valid": [{"start": start, "stop": stop} for start, stop in experts.valid],
    }


def _json(row: Row) -> str:
    try:
        return orjson.dumps(row.metadata).decode()
    except TypeError as error:
        raise InputError(f"row {row.name!r:.60}: its metadata cannot be written: {error}") from None


def from_columns(data: Mapping[str, Any]) -> Entry:
    """Return the row that plain data describe; raises `InputError` where they do not."""
    try:
        row = Row(
            name=data["name"],
            ids=Ids.from_items(data["ids"]),
            loss_mask=bytes(data["loss_mask"]),
            logprobs=tuple(data["logprobs"]),
            ledger=tuple(_spans(data["spans"])),
            turns=tuple(_turns(data["turns"])),
            experts=None if data["experts"] is None else _read_experts(data["experts"]),
            left_out=data["left_out"],
            reward=data["reward"],
            weight=data["weight"],
            tree=data["tree"],
            metadata=orjson.loads(data["metadata"]),
        )
        return Entry(conversation=data["conversation"], line=data["line"], place=data["place"], row=row)
    except KeyError as error:
        raise InputError(f"a row has no {error.args[0]!r}: is this a file of rows?") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"a row does not hold together: {error}") from None


def _spans(found: list[dict[str, Any]]) -> Iterator[RowSpan]:
    for span in found:
        yield RowSpan(**{**span, "origin": _named(Origin, span["origin"])})


def _turns(found: list[dict[str, Any]]) -> Iterator[RowTurn]:
    for turn in found:
        yield RowTurn(**{**turn, "ending": _named(Ending, turn["ending"])})


def _named(kind: type[E], name: str) -> E:
    return kind[name.upper()]


def _read_experts(found: Mapping[str, Any]) -> RowExperts:
    valid = tuple((one["start"], one["stop"]) for one in found["valid"])
    return RowExperts(data=found["data"], dtype=found["dtype"], shape=tuple(found["shape"]), valid=valid)
