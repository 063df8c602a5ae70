"""A session's training samples as the session protocol sends them: safetensors with a JSON part, or JSON.

A sample is a row of the forest: a leaf with all turns on the path to it. Each sampled id is trained in one
row. A sample's response begins with the first completion. Where a sampled id lacks its log-probability, the
whole field is null; no number is invented.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from tito_core.samples import Forest, Row, SampleOptions, make_rows
from tito_core.samples.options import Cut
from tito_io.samples.trainer_columns import miles_mask

from .commit import Commit
from .session import Session

META = "_samples_meta"
NUMBERS = {"I64": "q", "U8": "B", "F64": "d", "I32": "i"}
WIDTHS = {"I64": 8, "F64": 8, "I32": 4, "U8": 1}
MASKED = 0.0
"""The log-probability at positions that were not sampled."""
STATUS = {"length": "truncated", "abort": "aborted"}
EXPERTS = {"uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "uint32": "I", "int32": "i", "int64": "q"}
"""Types of routed experts, and their codes in `array`."""

Decode = Callable[[list[int]], str]
Tensors = dict[str, Mapping[str, Any]]
"""Types, shapes and bytes by name."""


@attrs.frozen
class SamplesPayload:
    """Samples in either form.

    Attributes:
        meta: What is not a tensor: a dict per sample, and the session's metadata.
        tensors: Types, shapes and bytes by name, which is `FIELD.SAMPLE`.
    """

    meta: Mapping[str, Any]
    tensors: Tensors

    @classmethod
    def of(
        cls,
        session: Session,
        max_length: int | None,
        collected: Mapping[str, Any],
        metadata: Mapping[str, Any],
        decode: Decode | None,
        *,
        one: bool = False,
    ) -> SamplesPayload:
        """Return the samples of a session.

        Args:
            session: The session.
            max_length: The longest row in ids; a longer path is cut.
            collected: What every sample's metadata holds: the collector's `metadata`.
            metadata: What the payload says of the session.
            decode: Returns the text of ids, where the model's folder is known.
            one: Whether to return one sample at most, for the path to the newest turn.
        """
        options = SampleOptions(max_length=max_length, cut=Cut.INSIDE)
        forest, tensors = session.forest, Tensors()
        if one and session.newest is not None:
            metadata = {**metadata, "leaves_left_out": len(forest.leaves) - 1}
            path = forest.path(session.newest.name)
            forest = Forest.of(session.commits[name].call for name in path)
        writer = _Writer(session, forest, tensors, collected, decode)
        rows = [writer.sample(place, row) for place, row in enumerate(make_rows(forest, options).rows)]
        reason = None if rows else "all_truncated" if session.commits else "no_records"
        meta = {"samples": rows, "session_metadata": dict(metadata), "empty_reason": reason}
        return cls(meta, tensors)

    def safetensors(self) -> bytes:
        """Return the safetensors container: the header's length, the header, and one tensor after the other.

        The tensor `_samples_meta` is the JSON part. The wider numbers come first, so that each tensor's
        offset is a multiple of its width.
        """
        data = orjson.dumps(self.meta)
        tensors = {**self.tensors, META: {"dtype": "U8", "shape": [len(data)], "data": data}}
        names = sorted(tensors, key=lambda name: (-WIDTHS[tensors[name]["dtype"]], name))
        header, end = {}, 0
        for name in names:
            one = tensors[name]
            begin, end = end, end + len(one["data"])
            header[name] = {"dtype": one["dtype"], "shape": one["shape"], "data_offsets": [begin, end]}
        text = orjson.dumps(header)
        text += b" " * (-len(text) % 8)
        return b"".join((len(text).to_bytes(8, "little"), text, *(tensors[name]["data"] for name in names)))

    def plain(self) -> dict[str, Any]:
        """Return JSON data: each tensor is a list under its field's name, and null where it is missing."""
        rows = [dict.fromkeys(row["nulls"]) | row for row in self.meta["samples"]]
        for name, tensor in self.tensors.items():
            field, _, place = name.rpartition(".")
            rows[int(place)][field] = _listed(tensor)
        return {**self.meta, "samples": rows}


@attrs.frozen
class _Writer:
    """Writes samples."""

    session: Session
    forest: Forest
    tensors: Tensors
    collected: Mapping[str, Any]
    decode: Decode | None

    def sample(self, place: int, row: Row) -> dict[str, Any]:
        """Add a row's tensors, and return the rest of the sample."""
        start = row.turns[0].start
        response = row.ids.tolist()[start:]
        _put(self.tensors, f"tokens.{place}", "I64", row.ids.tolist())
        _put(self.tensors, f"loss_mask.{place}", "U8", row.loss_mask[start:])
        nulls = [*_logprobs(self.tensors, place, row, start), *_experts(self.tensors, place, row)]
        nulls += _mask(self.tensors, place, row, start)
        path = [self.session.commits[name] for name in self.forest.path(row.name)]
        return {
            "response": self.decode(response) if self.decode else "",
            "response_length": len(response),
            "status": STATUS.get(row.turns[-1].finish_reason or "", "completed"),
            "weight_versions": [span.weights for span in row.ledger if span.weights is not None],
            "prefix_cache_info": {
                "cached_tokens": sum(one.origin.cached or 0 for one in path),
                "total_prompt_tokens": sum(len(one.step.prompt_ids) for one in path),
            },
            "metadata": {
                **_lifecycle(path[: len(row.turns)]),
                **self._leaf(row),
                **self.collected,
            },
            "nulls": ["rollout_indexer_topk", *nulls],
            "reward": self.collected.get("reward", row.reward),
        }

    def _leaf(self, row: Row) -> dict[str, Any]:
        """Return what the protocol's later generation says of a leaf."""
        leaf = {
            "node_id": row.name,
            "parent": self.forest[row.name].parent,
            "path_node_ids": list(self.forest.path(row.name)),
            "response_id": self.session.commits[row.name].response,
            "follows": row.follows,
            "auxiliary": row.auxiliary,
            "agent": row.agent.name.lower(),
            **({"received": False} if row.name in self.session.unreceived else {}),
            **({"media": [attrs.asdict(one) for one in row.media]} if row.media else {}),
        }
        return {"accumulated_token_ids": row.ids.tolist(), "tito_session_mismatch": [], "leaf": leaf}


def _lifecycle(path: Sequence[Commit]) -> dict[str, Any]:
    """Return when each turn of a row came and ended, as `miles/utils/lifecycle.py` of Miles does.

    `t0` is the engine's own start, which is not stored. A row of one turn has no list, as in Miles.
    """
    found: list[dict[str, Any]] = []
    for turn, commit in enumerate(path, 1):
        before = {"prev_t1": path[turn - 2].at} if turn > 1 else {}
        times = {"t0": None, "t1": commit.at, "turn": turn, "req_ts": commit.origin.requested}
        found.append(times | before)
    return {"lifecycle": found[0] if len(found) == 1 else found}


def _logprobs(tensors: Tensors, place: int, row: Row, start: int) -> list[str]:
    """Add the log-probabilities, or return the field's name where a sampled id lacks one."""
    pairs = list(zip(row.loss_mask, row.logprobs, strict=True))[start:]
    if any(trained and value is None for trained, value in pairs):
        return ["rollout_log_probs"]
    _put(tensors, f"rollout_log_probs.{place}", "F64", [MASKED if one is None else one for _, one in pairs])
    return []


def _experts(tensors: Tensors, place: int, row: Row) -> list[str]:
    """Add the routed experts as 32-bit numbers, or return the field's name where the row lacks them."""
    experts = row.experts
    if experts is None:
        return ["rollout_routed_experts"]
    numbers = array(EXPERTS[experts.dtype], experts.data)
    _put(tensors, f"rollout_routed_experts.{place}", "I32", numbers, list(experts.shape))
    return []


def _mask(tensors: Tensors, place: int, row: Row, start: int) -> list[str]:
    """Add the sampling mask, or return the field's name where an id that trains lacks one.

    A row without masks has neither: Miles knows the field only where masks were asked for.
    """
    mask = miles_mask(row, start)
    for name, numbers in (mask or {}).items():
        dtype = {"ids": "I32", "offsets": "I64"}[name]
        _put(tensors, f"rollout_sampling_mask.{name}.{place}", dtype, numbers)
    return ["rollout_sampling_mask"] if mask is None and row.sampling_mask is not None else []


def _put(
    tensors: Tensors, name: str, dtype: str, numbers: Sequence[Any], shape: Sequence[int] | None = None
) -> None:
    data = array(NUMBERS[dtype], numbers).tobytes()
    tensors[name] = {"dtype": dtype, "shape": list(shape or [len(numbers)]), "data": data}


def _listed(tensor: Mapping[str, Any]) -> Any:
    """Return a tensor's numbers, as nested lists where it has several dimensions.

    >>> _listed({"dtype": "U8", "shape": [2, 1], "data": bytes([7, 8])})
    [[7], [8]]
    """
    numbers: list[Any] = array(NUMBERS[tensor["dtype"]], tensor["data"]).tolist()
    for width in tensor["shape"][:0:-1]:
        numbers = [numbers[start : start + width] for start in range(0, len(numbers), width)]
    return numbers
