"""Columns of rows under the names that trainers read; no row is padded.

A trainer's rows also have `conversation`, `group`, `agent`, `name`, `reward` and `weight` of the row. Spans,
turns, routed experts and metadata are in tito's own columns alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from tito_core.samples import Row

from .entry import Entry, plain_ids, to_columns

IGNORED = -100
"""The label of an id that does not train: what PyTorch's cross entropy ignores."""


@attrs.frozen(kw_only=True)
class Columns:
    """Which columns a row has.

    Attributes:
        description: Whose columns they are, for `--help`.
        make: Returns the columns of a row.
        types: Each column's type by the name of a function of pyarrow, as `list:int32`; None for tito's own.
    """

    description: str
    make: Callable[[Entry], dict[str, Any]]
    types: Mapping[str, str] | None


def trl_columns(entry: Entry) -> dict[str, Any]:
    """Return the columns that TRL's `SFTTrainer` reads: trl 1.16.0, `trl/trainer/sft_trainer.py`."""
    row, ids = entry.row, plain_ids(entry.row)
    pairs = zip(ids, row.loss_mask, strict=True)
    return {
        **_common(entry),
        "input_ids": ids,
        "labels": [one if trained else IGNORED for one, trained in pairs],
        "attention_mask": [1] * len(ids),
        "completion_mask": list(row.loss_mask),
    }


def verl_columns(entry: Entry) -> dict[str, Any]:
    """Return the columns of a batch: verl 0.9.1, `verl/experimental/agent_loop/agent_loop.py`."""
    row, ids = entry.row, plain_ids(entry.row)
    start = response_start(row)
    return {
        **_common(entry),
        "prompts": ids[:start],
        "responses": ids[start:],
        "response_mask": list(row.loss_mask[start:]),
        "rollout_log_probs": filled_logprobs(row, start),
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
    }


def response_start(row: Row) -> int:
    """Return the position of the first sampled id, where trainers let the response begin."""
    return min((turn.start for turn in row.turns), default=len(row))


def filled_logprobs(row: Row, start: int) -> list[float] | None:
    """Return one log-probability per id from `start` on, 0 where untrained; None if a trained id has none."""
    tail = row.logprobs[start:]
    if any(mask and value is None for mask, value in zip(row.loss_mask[start:], tail, strict=True)):
        return None
    return [0.0 if value is None else value for value in tail]


def _common(entry: Entry) -> dict[str, Any]:
    row = entry.row
    reward = None if row.reward is None else float(row.reward)
    return {
        "conversation": entry.conversation,
        "group": entry.group,
        "agent": row.agent.name.lower(),
        "name": row.name,
        "reward": reward,
        "weight": row.weight,
    }


COMMON = {"conversation": "string", "group": "string", "agent": "string", "name": "string"}
COMMON |= {"reward": "float64", "weight": "float64"}
TRL = {"input_ids": "list:int32", "labels": "list:int32"}
TRL |= {"attention_mask": "list:int8", "completion_mask": "list:int8"}
VERL = {"prompts": "list:int32", "responses": "list:int32", "response_mask": "list:int8"}
VERL |= {"rollout_log_probs": "list:float64", "input_ids": "list:int32", "attention_mask": "list:int8"}

COLUMNS: Mapping[str, Columns] = {
    "tito": Columns(description="all that is known of a row", make=to_columns, types=None),
    "trl": Columns(description="names of TRL's SFTTrainer", make=trl_columns, types=COMMON | TRL),
    "verl": Columns(description="names of verl's batches", make=verl_columns, types=COMMON | VERL),
}
"""By name; the first is the default."""
