"""A session's training samples in the session protocol's container: safetensors, with a JSON part in it.

The same as plain JSON has each tensor as a list under its field's name, with null for a field that is null.

A sample is a row of the forest: a leaf with all turns on the way to it, each sampled id trained in one row.
Its response begins where the model first spoke. What has no log-probability gets none: a whole field is null
before a number is made up.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from tito_core import InputError
from tito_core.samples import Forest, Row, SampleOptions, make_rows
from tito_core.samples.options import Cut

from .session import Session

META = "_samples_meta"
NUMBERS = {"I64": "q", "U8": "B", "F64": "d", "I32": "i"}
WIDTHS = {"I64": 8, "F64": 8, "I32": 4, "U8": 1}
MASKED = 0.0
"""What stands at positions that were not sampled, and have no log-probability."""
STATUS = {"length": "truncated", "abort": "aborted"}

Decode = Callable[[list[int]], str]
Tensors = dict[str, Mapping[str, Any]]
"""Types, shapes and bytes by name."""


@attrs.frozen
class Contained:
    """Samples: what is said of them, and their tensors."""

    meta: Mapping[str, Any]
    tensors: Tensors

    def safetensors(self) -> bytes:
        """Return the container."""
        data = orjson.dumps(self.meta)
        return _written({**self.tensors, META: {"dtype": "U8", "shape": [len(data)], "data": data}})

    def plain(self) -> dict[str, Any]:
        """Return the same as JSON data."""
        rows = [dict.fromkeys(row["nulls"]) | row for row in self.meta["samples"]]
        for name, tensor in self.tensors.items():
            field, _, place = name.rpartition(".")
            rows[int(place)][field] = _listed(tensor)
        return {**self.meta, "samples": rows}


def payload(
    session: Session,
    max_seq_len: int | None,
    told: Mapping[str, Any] | None,
    metadata: Mapping[str, Any],
    decode: Decode | None,
) -> Contained:
    """Return all samples of at most `max_seq_len` ids."""
    options = SampleOptions(max_length=max_seq_len, cut=Cut.INSIDE)
    forest, tensors = session.forest, Tensors()
    found = make_rows(forest, options).rows
    made = _Made(session, forest, tensors, told or {}, decode)
    rows = [made.sample(place, row) for place, row in enumerate(found)]
    reason = None if rows else "all_truncated" if session.commits else "no_records"
    meta = {"samples": rows, "session_metadata": dict(metadata), "empty_reason": reason}
    return Contained(meta, tensors)


def _written(tensors: Tensors) -> bytes:
    """Return the container: the header's length, the header, the tensors one behind the other.

    The wider numbers come first, so that each stands where its width divides its place.
    """
    names = sorted(tensors, key=lambda name: (-WIDTHS[tensors[name]["dtype"]], name))
    header, end = {}, 0
    for name in names:
        one = tensors[name]
        begin, end = end, end + len(one["data"])
        header[name] = {"dtype": one["dtype"], "shape": one["shape"], "data_offsets": [begin, end]}
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, *(tensors[name]["data"] for name in names)))


@attrs.frozen
class _Made:
    """What samples are made of."""

    session: Session
    forest: Forest
    tensors: Tensors
    told: Mapping[str, Any]
    """What the collector wants to stand in every sample's metadata."""
    decode: Decode | None

    def sample(self, place: int, row: Row) -> dict[str, Any]:
        """Put a row's tensors among the others and return what is said of it beside them."""
        start = row.turns[0].start
        response = row.ids.tolist()[start:]
        _put(self.tensors, f"tokens.{place}", "I64", row.ids.tolist())
        _put(self.tensors, f"loss_mask.{place}", "U8", row.loss_mask[start:])
        nulls = [*_logprobs(self.tensors, place, row, start), *_experts(self.tensors, place, row)]
        return {
            "response": self.decode(response) if self.decode else "",
            "response_length": len(response),
            "status": STATUS.get(row.turns[-1].finish_reason or "", "completed"),
            "weight_versions": [span.weights for span in row.ledger if span.weights is not None],
            "prefix_cache_info": self._cache(row),
            "metadata": {**self._leaf(row), **self.told},
            "nulls": ["rollout_indexer_topk", *nulls],
            "reward": self.told.get("reward", row.reward),
        }

    def _cache(self, row: Row) -> dict[str, int]:
        path = [self.session.commits[name] for name in self.forest.path(row.name)]
        return {
            "cached_tokens": sum(one.origin.cached or 0 for one in path),
            "total_prompt_tokens": sum(len(one.step.prompt_ids) for one in path),
        }

    def _leaf(self, row: Row) -> dict[str, Any]:
        """Return what the protocol's second generation says of a leaf."""
        leaf = {
            "node_id": row.name,
            "parent": self.forest[row.name].parent,
            "path_node_ids": list(self.forest.path(row.name)),
            "response_id": self.session.commits[row.name].response,
        }
        return {"accumulated_token_ids": row.ids.tolist(), "tito_session_mismatch": [], "leaf": leaf}


def _logprobs(tensors: Tensors, place: int, row: Row, start: int) -> list[str]:
    """Put the log-probabilities, or return the field's name where a sampled id has none."""
    pairs = list(zip(row.loss_mask, row.logprobs, strict=True))[start:]
    if any(trained and value is None for trained, value in pairs):
        return ["rollout_log_probs"]
    _put(tensors, f"rollout_log_probs.{place}", "F64", [MASKED if one is None else one for _, one in pairs])
    return []


def _experts(tensors: Tensors, place: int, row: Row) -> list[str]:
    """Put the routed experts as 32-bit numbers, or return the field's name where there are none."""
    experts = row.experts
    if experts is None:
        return ["rollout_routed_experts"]
    codes = {
        "uint8": "B",
        "int8": "b",
        "uint16": "H",
        "int16": "h",
        "uint32": "I",
        "int32": "i",
        "int64": "q",
    }
    numbers = array(codes[experts.dtype], experts.data)
    _put(tensors, f"rollout_routed_experts.{place}", "I32", numbers, list(experts.shape))
    return []


def _put(
    tensors: Tensors, name: str, dtype: str, numbers: Sequence[Any], shape: Sequence[int] | None = None
) -> None:
    data = array(NUMBERS[dtype], numbers).tobytes()
    tensors[name] = {"dtype": dtype, "shape": list(shape or [len(numbers)]), "data": data}


def _listed(tensor: Mapping[str, Any]) -> Any:
    """Return a tensor's numbers, in lists of lists where it has several dimensions.

    >>> _listed({"dtype": "U8", "shape": [2, 1], "data": bytes([7, 8])})
    [[7], [8]]
    """
    found: list[Any] = array(NUMBERS[tensor["dtype"]], tensor["data"]).tolist()
    for width in tensor["shape"][:0:-1]:
        found = [found[start : start + width] for start in range(0, len(found), width)]
    return found


def checked_length(value: object) -> int | None:
    """Return the longest row that a request wants; raises `InputError`."""
    if value is None or (type(value) is int and value > 0):
        return value
    raise InputError(f"max_seq_len is {value!r:.40}: give a whole number of ids, or null")
