"""Calls that NeMo Gym captured, and rollouts as it hands them to trainers, for training rows of tito.

Facts: nemo-gym 0.7.0, `nemo_gym/token_id_capture/records.py` and `store.py` (captured calls: schema 1, with
digests, and prompts without the call before); pull request 2181 of NVIDIA-NeMo/Gym for schema 2 to 5. The
output items are those that `nemo_rl/environments/nemo_gym.py` of NVIDIA-NeMo/RL 7ea279a reads. Nothing is
imported from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from struct import pack
from typing import Any

import orjson

from tito_core import InputError, Step
from tito_core.samples import Row, StoredCall

NEWEST_SCHEMA = 5
"""The newest `schema_version` of a captured call whose fields are known here."""

ID_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""Fields of a captured call and of an output item with the ids of one call."""

Record = Mapping[str, Any]


def read_capture(path: str | Path, *, reward: float | None = None) -> list[StoredCall]:
    """Read the file of a rollout's captured calls, `ID.tokens.jsonl`.

    Args:
        path: The file.
        reward: The rollout's reward, which the capture does not have.

    Raises:
        InputError: Calls of the rollout are missing: Gym marks that with `ID.tokens.incomplete`. Or a record
            is malformed, or newer than known.
    """
    file = Path(path)
    require_complete(file)
    lines = [line for line in file.read_bytes().splitlines() if line.strip()]
    return captured_calls(map(_loaded, lines), reward=reward)


def require_complete(file: Path) -> None:
    """Raise `InputError` if Gym has marked that a call of the rollout in `file` is missing."""
    mark = file.with_name(file.name.removesuffix(".jsonl") + ".incomplete")
    if mark.exists():
        raise InputError(f"{mark.name}: a call of the rollout was not captured, so that it must not train")


def captured_calls(records: Iterable[Record], *, reward: float | None = None) -> list[StoredCall]:
    """Return the calls of a rollout from its captured records, in any order.

    `tito_core.samples.Forest.of` makes their trees: retries, branches and new contexts. The other fields of a
    record, such as `output_items` and `routed_experts`, become the call's metadata, unread.

    Args:
        records: Records with the ids of one call each.
        reward: The rollout's reward.

    Raises:
        InputError: A record is malformed or newer than known, or it continues a call that is missing.

    >>> record = {"schema_version": 1, "rollout_id": "r", "model_call_id": "a", "prompt_token_ids": [1, 2],
    ...           "generation_token_ids": [3], "generation_log_probs": [-0.5]}
    >>> (call,) = captured_calls([record], reward=1.0)
    >>> call.name, call.ids, call.reward
    ('a', Ids([1, 2, 3]), 1.0)
    """
    known: dict[str, Record] = {}
    for record in records:
        name = call_name(record)
        if known.setdefault(name, record) != record:
            raise InputError(f"model_call_id {name!r:.60} has two records that differ: leave one out")
    return [
        captured_call(record, _whole_prompt(record, known), order=order, reward=reward)
        for order, record in enumerate(known.values())
    ]


def captured_call(
    record: Record, prompt: Sequence[int], *, order: int, reward: float | None = None
) -> StoredCall:
    """Return the call of one captured record.

    Args:
        record: The record.
        prompt: All ids of its prompt, which the record may not have.
        order: When it was captured, by any count that grows.
        reward: The rollout's reward.

    Raises:
        InputError: The record is malformed or newer than known, or its digest is not that of its ids.
    """
    return StoredCall(
        name=call_name(record),
        order=order,
        step=_captured_step(record, prompt),
        reward=reward,
        metadata={key: value for key, value in record.items() if key not in ID_FIELDS},
    )


def call_name(record: Record) -> str:
    """Return the name of a captured call; raises `InputError` for a record without one, or one too new."""
    version, name = record.get("schema_version", 1), _field(record, "model_call_id", str)
    if type(version) is not int or not 1 <= version <= NEWEST_SCHEMA:
        raise InputError(
            f"schema_version of call {name!r:.60} is {version!r:.60}: 1 to {NEWEST_SCHEMA} are known"
        )
    return str(name)


def added_prompt(record: Record) -> list[int]:
    """Return the prompt ids that a record has; raises `InputError` if it has none."""
    return list(_field(record, "prompt_token_ids", list))


def response_calls(result: Record) -> list[StoredCall]:
    """Return the calls of a finished rollout from the output items that have ids; the last has the reward.

    Args:
        result: The record of a rollout, with `response` and perhaps `reward`.

    Raises:
        InputError: Gym says by `mask_sample` that the rollout must not train, or an item is malformed.

    >>> item = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    >>> response = {"id": "r", "output": [item, {"type": "function_call_output"}]}
    >>> [(call.name, call.ids, call.reward) for call in response_calls({"response": response, "reward": 0.5})]
    [('r/0', Ids([1, 2]), 0.5)]
    """
    if result.get("mask_sample"):
        raise InputError(
            "mask_sample is true: Gym could not tell what was sampled, so that it must not train"
        )
    response = _field(result, "response", dict)
    items = _sampled_items(response)
    return [
        StoredCall(
            name=f"{response.get('id') or 'response'}/{order}",
            order=order,
            step=_step(item, _field(item, "prompt_token_ids", list)),
            reward=result.get("reward") if order == len(items) - 1 else None,
            metadata={key: value for key, value in item.items() if key not in ID_FIELDS},
        )
        for order, item in enumerate(items)
    ]


def _sampled_items(response: Record) -> list[Record]:
    """Return the output items that have ids."""
    items = _field(response, "output", list)
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise InputError(f"output[{index}] is {item!r:.60}: give an object")
    return [item for item in items if item.get("generation_token_ids")]


def output_items(row: Row) -> list[dict[str, Any]]:
    """Return the turns that a row trains as output items, each with its whole prompt, as NeMo-RL reads them.

    A turn that another row trains is part of the prompt, so that it trains once. The items have ids, but no
    text.

    Raises:
        InputError: An id that trains has no log-probability.

    >>> from tito_core.samples import Forest, make_rows
    >>> item = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    >>> (row,) = make_rows(Forest.of(response_calls({"response": {"output": [item]}}))).rows
    >>> output_items(row) == [{"type": "message", "role": "assistant", "content": [], **item}]
    True
    """
    ids = row.ids.tolist()
    return [
        {
            "type": "message",
            "role": "assistant",
            "content": [],
            "prompt_token_ids": ids[:start],
            "generation_token_ids": ids[start:stop],
            "generation_log_probs": _log_probs(row, start, stop),
        }
        for start, stop in _trained_runs(row.loss_mask)
    ]


def _trained_runs(mask: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each run of ones."""
    start = 0
    for on, run in groupby(mask):
        stop = start + sum(1 for _ in run)
        if on:
            yield start, stop
        start = stop


def _log_probs(row: Row, start: int, stop: int) -> list[float]:
    values = [value for value in row.logprobs[start:stop] if value is not None]
    if len(values) != stop - start:
        raise InputError(
            f"row {row.name!r}: {stop - start - len(values)} ids that train have no log-probability:"
            " ask the engine for them"
        )
    return values


def _loaded(line: bytes) -> Record:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"a captured call is not valid JSON: {error}: {line!r:.60}") from error
    if not isinstance(record, dict):
        raise InputError(f"a captured call is {type(record).__name__}: it must be an object")
    return record


def _field(record: Record, name: str, kind: type) -> Any:
    value = record.get(name)
    if not isinstance(value, kind):
        raise InputError(f"{name} is {value!r:.60}: give a {kind.__name__}")
    return value


def _step(record: Record, prompt: Sequence[int]) -> Step:
    """Return the step, which checks that there is one log-probability for each sampled id."""
    return Step(
        prompt=[],
        completion=[],
        prompt_ids=prompt,
        completion_ids=_field(record, "generation_token_ids", list),
        logprobs=_field(record, "generation_log_probs", list),
    )


def _captured_step(record: Record, prompt: Sequence[int]) -> Step:
    """Return the step of a captured call, which may have the digest of all its ids."""
    step = _step(record, prompt)
    digest = record.get("digest")
    if digest is not None and digest != _digest(step.ids.tolist()):
        raise InputError(
            f"digest of call {record['model_call_id']!r:.60} is not that of its {len(step.ids)} ids"
        )
    return step


def _whole_prompt(record: Record, known: Mapping[str, Record]) -> list[int]:
    """Return the prompt ids; those of a continuation may be stored without the ids of the call before."""
    path = [record]
    while path[-1].get("prompt_is_delta"):
        name = path[-1].get("parent_call_id")
        parent = known.get(name) if isinstance(name, str) else None
        if parent is None or len(path) == len(known):
            raise InputError(
                f"call {path[-1]['model_call_id']!r:.60} continues {name!r:.60},"
                " which is not among the records: give all calls of the rollout"
            )
        path.append(parent)
    ids: list[int] = []
    for one in reversed(path):
        prompt = ids = [*ids, *_field(one, "prompt_token_ids", list)]
        ids = [*prompt, *_field(one, "generation_token_ids", list)]
    return prompt


def _digest(ids: list[int]) -> str:
    """Return Gym's digest of ids."""
    text = pack(f">BQ{len(ids)}Q", 1, len(ids), *ids) if ids else b""
    return sha256(b"nemo-gym-tokens" + text).hexdigest()
