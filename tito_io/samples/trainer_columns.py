"""Columns of rows under the names that trainers read; no row is padded.

A trainer's rows also have `conversation`, `group`, `agent`, `name`, `reward` and `weight` of the row, and
`processed_logprobs` where they have log-probabilities. Spans, turns, routed experts and metadata are in
tito's own columns alone.

A sampling mask is flat in each trainer's names: the kept ids of all positions, and how many each position
has, or where its own begin. None where the id was not sampled, or where its mask is unknown.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain, compress
from typing import Any

import attrs

from tito_core import Ids
from tito_core.samples import Row

from .entry import Entry, flat_mask, plain_ids, signed, to_columns

IGNORED = -100
"""The label of an id that does not train: what PyTorch's cross entropy ignores."""


@attrs.frozen(kw_only=True)
class Columns:
    """Which columns a row has.

    Attributes:
        description: Whose columns they are, for `--help`.
        make: Returns the columns of a row.
        types: Each column's type by the name of a function of pyarrow, as `list:int32`, or `MASK`; None for
            tito's own.
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
        **_scored(entry),
        "prompts": ids[:start],
        "responses": ids[start:],
        "response_mask": list(row.loss_mask[start:]),
        "rollout_log_probs": filled_logprobs(row, start),
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
    }


def prime_rl_columns(entry: Entry) -> dict[str, Any]:
    """Return the columns of prime-rl's `TrainingSample`: its #3431, `src/prime_rl/transport/types.py`.

    `sampling_mask` is also that of a branch of verifiers: verifiers 0.4.0, `verifiers/v1/trace.py`.
    """
    row = entry.row
    return {
        **_scored(entry),
        "token_ids": plain_ids(row),
        "mask": [*map(bool, row.loss_mask)],
        "logprobs": filled_logprobs(row, 0),
        "sampling_mask": flat_mask(row),
    }


def skyrl_columns(entry: Entry) -> dict[str, Any]:
    """Return the columns of a `GeneratorOutput`: skyrl 0.4.0, `skyrl/train/generators/base.py`.

    Its `rollout_sample_support` has a row of the same width for each id of a response; here it is flat,
    because the width is that of a whole batch.
    """
    row, ids = entry.row, plain_ids(entry.row)
    start = response_start(row)
    return {
        **_scored(entry),
        "prompt_token_ids": ids[:start],
        "response_ids": ids[start:],
        "loss_masks": list(row.loss_mask[start:]),
        "rollout_logprobs": filled_logprobs(row, start),
        "rollout_sample_support": flat_mask(row, start),
    }


def slime_columns(entry: Entry) -> dict[str, Any]:
    """Return the columns of a `Sample`: slime 0.3.1, commit 624b824, `slime/utils/types.py`."""
    row, start = entry.row, response_start(entry.row)
    mask = flat_mask(row, start)
    return {
        **_scored(entry),
        "tokens": plain_ids(row),
        "response_length": len(row) - start,
        "loss_mask": list(row.loss_mask[start:]),
        "rollout_log_probs": filled_logprobs(row, start),
        "rollout_top_p_token_ids": None if mask is None else mask["ids"],
        "rollout_top_p_token_offsets": None if mask is None else array("i", _offsets(mask["counts"])),
    }


def miles_mask(row: Row, start: int) -> dict[str, array[int]] | None:
    """Return `ids` and `offsets` of Miles' mask of a response, which begins at `start`; None without a mask.

    Each id needs one there (`miles/utils/sampling_mask.py`), so what was not sampled has its own id alone, as
    `append_forced_sampling_tokens` has it. None, too, if an id that trains has no mask: none is invented.
    Raises `InputError` for an id above 2**31 - 1.
    """
    mask = row.sampling_mask
    if mask is None or not all(compress(mask.counts, row.loss_mask)):
        return None
    kept = [each or (one,) for one, each in zip(row.ids[start:], [*mask][start:], strict=True)]
    ids = Ids.from_items(chain.from_iterable(kept))
    return {"ids": signed(row, ids), "offsets": array("q", _offsets(map(len, kept)))}


def _offsets(counts: Iterable[int]) -> Iterator[int]:
    """Return where the ids of each position begin, and where the last ones end."""
    return accumulate(counts, initial=0)


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


def _scored(entry: Entry) -> dict[str, Any]:
    """Return what the rows of trainers that read log-probabilities have in common."""
    return {**_common(entry), "processed_logprobs": entry.row.processed_logprobs}


COMMON = {"conversation": "string", "group": "string", "agent": "string", "name": "string"}
COMMON |= {"reward": "float64", "weight": "float64"}
TRL = {"input_ids": "list:int32", "labels": "list:int32"}
TRL |= {"attention_mask": "list:int8", "completion_mask": "list:int8"}
SCORED = COMMON | {"processed_logprobs": "bool_"}
MASK = "mask"
"""The type of a sampling mask: `ids` and `counts`, a list of 32 bits each."""
VERL = {"prompts": "list:int32", "responses": "list:int32", "response_mask": "list:int8"}
VERL |= {"rollout_log_probs": "list:float64", "input_ids": "list:int32", "attention_mask": "list:int8"}
PRIME_RL = {
    "token_ids": "list:int32",
    "mask": "list:bool_",
    "logprobs": "list:float64",
    "sampling_mask": MASK,
}
SKYRL = {"prompt_token_ids": "list:int32", "response_ids": "list:int32", "loss_masks": "list:int8"}
SKYRL |= {"rollout_logprobs": "list:float64", "rollout_sample_support": MASK}
SLIME = {"tokens": "list:int32", "response_length": "int64", "loss_mask": "list:int8"}
SLIME |= {"rollout_log_probs": "list:float64"}
SLIME |= dict.fromkeys(("rollout_top_p_token_ids", "rollout_top_p_token_offsets"), "list:int32")

COLUMNS: Mapping[str, Columns] = {
    "tito": Columns(description="all that is known of a row", make=to_columns, types=None),
    "trl": Columns(description="names of TRL's SFTTrainer", make=trl_columns, types=COMMON | TRL),
    "verl": Columns(description="names of verl's batches", make=verl_columns, types=SCORED | VERL),
    "prime-rl": Columns(
        description="names of prime-rl and verifiers", make=prime_rl_columns, types=SCORED | PRIME_RL
    ),
    "skyrl": Columns(description="names of SkyRL's generators", make=skyrl_columns, types=SCORED | SKYRL),
    "slime": Columns(description="names of slime's samples", make=slime_columns, types=SCORED | SLIME),
}
"""By name; the first is the default."""
