"""Rows as Miles' samples reply: a safetensors container, which the reader of that reply reads as well.

`tokens.N`, `loss_mask.N`, `rollout_log_probs.N` and `rollout_routed_experts.N` are those of row N, and the
JSON in `_samples_meta` says the rest. What that form has no place for stands there under `tito`, so that rows
come back as they were. A response begins with the first sampled id. Its text is not known here and left
empty, and where a trained id has no log-probability the row's are null: none is made up.

Tensors wait in unnamed files until their places are known, so that memory is bounded by one row and the JSON.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import attrs
import orjson

from tito_core import InputError
from tito_core.samples import Ending, Row
from tito_io.engines.protocol import EngineAnswer, EngineError
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import META, TENSORS, MilesSample, samples

from .entry import Entry, from_columns, to_columns

CODES = {"uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}
"""How the numbers of routed experts are written, as `memoryview.cast` names it."""
SAID = ("ids", "loss_mask", "logprobs", "experts")
"""Columns that tensors hold."""
WIDE, MIDDLE, NARROW = 8, 4, 1
"""Bytes of a number. Wide ones come first, so that each begins at a multiple of its size."""
ALIGNED = 8


@attrs.define
class Tensors:
    """Writes rows into a container."""

    file: BinaryIO
    _spools: dict[int, Any] = attrs.field(init=False)
    _places: dict[int, dict[str, dict[str, Any]]] = attrs.field(init=False)
    _said: list[bytes] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        """Begin with nothing."""
        self._spools = {size: tempfile.TemporaryFile() for size in (WIDE, MIDDLE, NARROW)}  # noqa: SIM115  # closed by `close`
        self._places = {size: {} for size in self._spools}

    def write(self, entry: Entry) -> None:
        """Take in a row."""
        index, row, start = len(self._said), entry.row, response(entry.row)
        logprobs = _logprobs(row, start)
        self._put(f"tokens.{index}", array("q", row.ids), [len(row)])
        self._put(f"loss_mask.{index}", array("B", row.loss_mask[start:]), [len(row) - start])
        if logprobs is not None:
            self._put(f"rollout_log_probs.{index}", logprobs, [len(logprobs)])
        if row.experts is not None:
            name = f"rollout_routed_experts.{index}"
            self._put(name, _numbers(row.experts.data, row.experts.dtype), list(row.experts.shape))
        self._said.append(orjson.dumps(_meta(entry, start, logprobs)))

    def finish(self) -> None:
        """Write the header and then all tensors."""
        reason = b"null" if self._said else b'"no_records"'
        meta = b'{"samples":[%b],"session_metadata":{},"empty_reason":%b}' % (b",".join(self._said), reason)
        self._put(META, array("B", meta), [len(meta)])
        header = orjson.dumps(self._header())
        header += b" " * (-len(header) % ALIGNED)
        self.file.write(struct.pack("<Q", len(header)) + header)
        for spool in self._spools.values():
            spool.seek(0)
            shutil.copyfileobj(spool, self.file)

    def close(self) -> None:
        """Drop the unnamed files."""
        for spool in self._spools.values():
            spool.close()

    def _put(self, name: str, numbers: array[Any], shape: list[int]) -> None:
        spool = self._spools[numbers.itemsize]
        start = spool.tell()
        spool.write(numbers.tobytes())
        said = {"dtype": TENSORS[name.rpartition(".")[0]][0] if name != META else "U8", "shape": shape}
        self._places[numbers.itemsize][name] = {**said, "data_offsets": (start, spool.tell())}

    def _header(self) -> dict[str, Any]:
        """Return where every tensor lies, once it is known how many bytes come before it."""
        found, before = {}, 0
        for size, spool in self._spools.items():
            for name, place in self._places[size].items():
                start, stop = place["data_offsets"]
                found[name] = {**place, "data_offsets": (before + start, before + stop)}
            before += spool.tell()
        return found


def response(row: Row) -> int:
    """Return where the first sampled id stands."""
    return min((turn.start for turn in row.turns), default=len(row))


def _logprobs(row: Row, start: int) -> array[float] | None:
    """Return one number an id of the response, 0 where none is needed; None where a trained id has none."""
    tail = row.logprobs[start:]
    if any(mask and value is None for mask, value in zip(row.loss_mask[start:], tail, strict=True)):
        return None
    return array("d", [0.0 if value is None else value for value in tail])


def _numbers(data: bytes, dtype: str) -> array[int]:
    """Return routed experts in 32 bits, which is what Miles takes."""
    view: memoryview[Any] = memoryview(data)
    return array("i", view.cast(cast("Any", CODES[dtype])).tolist())


def _meta(entry: Entry, start: int, logprobs: array[float] | None) -> dict[str, Any]:
    """Return what a sample says beside its tensors."""
    row, columns = entry.row, to_columns(entry)
    held = {name: value for name, value in columns.items() if name not in SAID}
    experts = columns["experts"]
    kept = {
        **held,
        "holes": [place for place in range(start, len(row)) if row.logprobs[place] is None],
        "logprobs": None if logprobs is not None else list(row.logprobs[start:]),
        "experts": None if experts is None else {**experts, "data": None},
    }
    nulls = ["rollout_indexer_topk"]
    nulls += ["rollout_log_probs"] * (logprobs is None) + ["rollout_routed_experts"] * (experts is None)
    return {
        "response": "",
        "response_length": len(row) - start,
        "status": _status(row),
        "weight_versions": [[_version(span.weights)] for span in row.ledger if span.weights is not None],
        "prefix_cache_info": {"cached_tokens": 0, "total_prompt_tokens": 0},
        "metadata": dict(row.metadata),
        "nulls": nulls,
        "reward": row.reward,
        "tito": kept,
    }


def _version(name: str) -> dict[str, str]:
    return {"version": name}


def _status(row: Row) -> str:
    """Return how the last turn ended, in Miles' word."""
    ending = row.turns[-1].ending if row.turns else Ending.EMPTY
    return {Ending.TRUNCATED: "truncated", Ending.ABORTED: "aborted"}.get(ending, "completed")


def read(path: Path) -> Iterator[Entry]:
    """Yield the rows of a container that `Tensors` wrote; raises `InputError` where it is none."""
    try:
        payload = path.read_bytes()
        found = samples(Check(str(path), EngineAnswer(200, None)), payload)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except EngineError as error:
        raise InputError(str(error)) from None
    for sample in found.samples:
        yield from_columns(_columns(sample, path))


def _columns(sample: MilesSample, path: Path) -> Mapping[str, Any]:
    """Return a sample as the columns of a row."""
    said = sample.more.get("tito")
    if not isinstance(said, dict) or sample.loss_mask is None:
        raise InputError(f"{path} holds samples of another server, which say less than a row")
    start = len(sample.tokens) - sample.response_length
    return {
        **{name: value for name, value in said.items() if name != "holes"},
        "ids": sample.tokens,
        "loss_mask": [0] * start + list(sample.loss_mask),
        "logprobs": [None] * start + _filled(sample, said, start),
        "experts": _experts(sample, said.get("experts")),
    }


def _filled(sample: MilesSample, said: Mapping[str, Any], start: int) -> list[float | None]:
    """Return log-probabilities with the holes that a container cannot have."""
    if sample.rollout_log_probs is None:
        return list(said["logprobs"])
    found = list(sample.rollout_log_probs)
    for place in said["holes"]:
        found[place - start] = None
    return found


def _experts(sample: MilesSample, said: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return routed experts in the width that they had."""
    if said is None or sample.rollout_routed_experts is None:
        return None
    numbers = array("i", sample.rollout_routed_experts.data)
    return {**said, "data": array(CODES[said["dtype"]], numbers).tobytes()}
