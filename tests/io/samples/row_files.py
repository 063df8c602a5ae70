"""Read files of rows back into rows, to compare them with those that were written."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import orjson

from tito_core import Ids, Origin, SamplingMask
from tito_core.data import from_data
from tito_core.media.ranges import MediaRange
from tito_core.samples import Agent, Ending, Row, RowExperts, RowSpan, RowTurn
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import MilesSample, samples
from tito_io.samples.entry import Entry
from tito_io.samples.tensors import CODES

pq: Any = import_module("pyarrow.parquet")


def entry_of(data: Mapping[str, Any]) -> Entry:
    """Return the row of plain columns."""
    experts = data["experts"]
    if experts is not None:
        ranges = {
            name: tuple((one["start"], one["stop"]) for one in experts[name])
            for name in ("valid", "corrected")
        }
        experts = RowExperts(**{**experts, "shape": tuple(experts["shape"]), **ranges})
    spans = [RowSpan(**{**one, "origin": Origin[one["origin"].upper()]}) for one in data["spans"]]
    turns = [RowTurn(**{**one, "ending": Ending[one["ending"].upper()]}) for one in data["turns"]]
    row = Row(
        ids=Ids.from_items(data["ids"]),
        loss_mask=bytes(data["loss_mask"]),
        logprobs=tuple(data["logprobs"]),
        ledger=tuple(spans),
        turns=tuple(turns),
        media=tuple(MediaRange(**one) for one in data["media"]),
        experts=experts,
        sampling_mask=data["sampling_mask"] and SamplingMask(**data["sampling_mask"]),
        metadata=orjson.loads(data["metadata"]),
        **{name: data[name] for name in ("name", "left_out", "reward", "weight", "tree", "follows")},
        agent=Agent[data["agent"].upper()],
    )
    assert data["auxiliary"] is row.auxiliary
    assert row.processed_logprobs == data["processed_logprobs"]
    place = {name: data[name] for name in ("conversation", "line", "place", "group")}
    return Entry(**place, row=row)


def from_lines(path: Path) -> Iterator[Entry]:
    for line in path.read_bytes().splitlines():
        data = orjson.loads(line)
        if data["experts"] is not None:
            data["experts"]["data"] = base64.b64decode(data["experts"]["data"])
        if data["sampling_mask"] is not None:
            data["sampling_mask"] = attrs.asdict(
                from_data(data["sampling_mask"], SamplingMask), recurse=False
            )
        yield entry_of(data)


def from_parquet(path: Path) -> Iterator[Entry]:
    yield from map(entry_of, pq.read_table(path).to_pylist())


def from_tensors(path: Path) -> Iterator[Entry]:
    for sample in samples(Check(str(path), EngineAnswer(200, None)), path.read_bytes()).samples:
        own = dict(sample.more["tito"])
        start, holes = len(sample.tokens) - sample.response_length, own.pop("holes")
        logprobs = own["logprobs"] if sample.rollout_log_probs is None else list(sample.rollout_log_probs)
        for place in holes if sample.rollout_log_probs is not None else ():
            logprobs[place - start] = None  # a tensor has no null
        own |= {"ids": sample.tokens, "loss_mask": [0] * start + list(sample.loss_mask or ())}
        own |= {"logprobs": [None] * start + logprobs, "experts": experts_of(sample, own["experts"])}
        own["sampling_mask"] = mask_of(sample, own)
        yield entry_of(own)


def mask_of(sample: MilesSample, own: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the mask without the single ids that Miles has where no mask is known."""
    mask, found = own["sampling_mask"], sample.rollout_sampling_mask
    if found is None:
        return mask and plain_mask(from_data(mask, SamplingMask))
    kept: list[tuple[int, ...]] = [()] * (len(sample.tokens) - sample.response_length)
    kept += map(tuple, found)
    sampled = {place for turn in own["turns"] for place in range(turn["start"], turn["stop"])}
    known = sampled.difference(mask["holes"])
    assert all(one in ((), (sample.tokens[place],)) for place, one in enumerate(kept) if place not in known)
    return plain_mask(SamplingMask.of(one if place in known else () for place, one in enumerate(kept)))


def plain_mask(mask: SamplingMask) -> Mapping[str, Any]:
    return attrs.asdict(mask, recurse=False)


def experts_of(sample: MilesSample, own: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return routed experts in the type that they had; the tensor has 32 bits."""
    if own is None or sample.rollout_routed_experts is None:
        return None
    numbers = array("i", sample.rollout_routed_experts.data)
    return {**own, "data": array(CODES[own["dtype"]], numbers).tobytes()}


READERS: Mapping[str, Callable[[Path], Iterator[Entry]]] = {
    ".jsonl": from_lines,
    ".parquet": from_parquet,
    ".safetensors": from_tensors,
}
