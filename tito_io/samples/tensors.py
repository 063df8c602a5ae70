"""Write rows in the safetensors form of Miles' samples reply.

`tokens.N`, `loss_mask.N`, `rollout_log_probs.N`, `rollout_sampling_mask.ids.N` and `.offsets.N`, and
`rollout_routed_experts.N` are the tensors of row N, and the JSON in `_samples_meta` has the rest. Columns
that this form lacks are there under `tito`, so that nothing is lost. A response begins with the first sampled
id, and its text is empty because it is unknown. If a trained id has no log-probability, the row's
log-probabilities are null; none is invented. Likewise its sampling mask is null if a trained id has none and
another id has. A row without any has no tensors of them.

Tensors wait in temporary files until their offsets are known, so memory is bounded by one row and the JSON.
"""

from __future__ import annotations

import shutil
import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO, cast

import attrs
import orjson

from tito_core.samples import Ending, Row
from tito_io.atomic_write import named_errors
from tito_io.engines.replies.samples_container import META, TENSORS

from .entry import Entry, check_finite, to_columns
from .sink import in_base64
from .trainer_columns import filled_logprobs, miles_mask, response_start

CODES = {"uint8": "B", "int8": "b", "uint16": "H", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}
"""Types of routed experts, and their codes for `memoryview.cast`."""
IN_TENSORS = ("ids", "loss_mask", "logprobs", "experts")
"""Columns that are tensors; the others are JSON."""
NUMBER_SIZES = (8, 4, 1)
"""Bytes of a number. Wide ones come first, so that each tensor begins at a multiple of its size."""
ALIGNED = 8


@attrs.define
class Tensors:
    """Writes rows into a container; the header is written last, once all offsets are known."""

    file: BinaryIO
    rows: int = 0
    _spools: dict[int, Any] = attrs.field(factory=lambda: {size: TemporaryFile() for size in NUMBER_SIZES})  # noqa: SIM115  # closed by `close`
    """One temporary file for each size of number."""
    _places: dict[int, dict[str, dict[str, Any]]] = attrs.field(factory=lambda: {n: {} for n in NUMBER_SIZES})
    _metas: list[bytes] = attrs.field(factory=list)

    def write(self, entry: Entry) -> None:
        """Spool the tensors of a row; raises `InputError`, before that, for one that cannot be written."""
        index, row, columns = self.rows, entry.row, to_columns(entry)
        start = response_start(row)
        logprobs = filled_logprobs(row, start)
        check_finite(row, row.logprobs if logprobs is None else ())
        self._put(f"tokens.{index}", array("q", row.ids), [len(row)])
        self._put(f"loss_mask.{index}", array("B", row.loss_mask[start:]), [len(row) - start])
        if logprobs is not None:
            self._put(f"rollout_log_probs.{index}", array("d", logprobs), [len(logprobs)])
        if row.experts is not None:
            view: memoryview[Any] = memoryview(row.experts.data)
            # Miles reads 32 bits.
            numbers = array("i", view.cast(cast("Any", CODES[row.experts.dtype])).tolist())
            self._put(f"rollout_routed_experts.{index}", numbers, list(row.experts.shape))
        mask = miles_mask(row, start)
        for name, numbers in (mask or {}).items():
            self._put(f"rollout_sampling_mask.{name}.{index}", numbers, [len(numbers)])
        meta = _meta(row, columns, start, no_logprobs=logprobs is None, no_mask=mask is None)
        self._metas.append(orjson.dumps(meta, default=in_base64))
        self.rows += 1

    def finish(self) -> None:
        """Write the header and then all tensors."""
        reason = b"null" if self._metas else b'"no_records"'
        meta = b'{"samples":[%b],"session_metadata":{},"empty_reason":%b}' % (b",".join(self._metas), reason)
        self._put(META, array("B", meta), [len(meta)])
        header = orjson.dumps(self._header())
        header += b" " * (-len(header) % ALIGNED)
        self.file.write(struct.pack("<Q", len(header)) + header)
        for spool in self._spools.values():
            with named_errors(Path(gettempdir())):
                spool.seek(0)
            shutil.copyfileobj(spool, self.file)

    def close(self) -> None:
        """Delete the temporary files."""
        for spool in self._spools.values():
            with named_errors(Path(gettempdir())):
                spool.close()

    def _put(self, name: str, numbers: array[Any], shape: list[int]) -> None:
        spool = self._spools[numbers.itemsize]
        start = spool.tell()
        with named_errors(Path(gettempdir())):
            spool.write(numbers.tobytes())
        dtype = TENSORS[name.rpartition(".")[0]][0] if name != META else "U8"
        offsets = (start, spool.tell())
        self._places[numbers.itemsize][name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}

    def _header(self) -> dict[str, Any]:
        """Return the header: offsets in the whole container, the temporary files one after the other."""
        header, before = {}, 0
        for size, spool in self._spools.items():
            for name, place in self._places[size].items():
                offsets = [before + offset for offset in place["data_offsets"]]
                header[name] = {**place, "data_offsets": offsets}
            before += spool.tell()
        return header


def _meta(
    row: Row, columns: dict[str, Any], start: int, *, no_logprobs: bool, no_mask: bool
) -> dict[str, Any]:
    """Return the JSON of a sample: the rest of a row's columns, and what has no tensor."""
    mask, experts = columns["sampling_mask"], columns["experts"]
    own = {
        **{name: value for name, value in columns.items() if name not in IN_TENSORS},
        # A tensor has no null: these positions had no log-probability.
        "holes": [place for place in range(start, len(row)) if row.logprobs[place] is None],
        "logprobs": list(row.logprobs[start:]) if no_logprobs else None,
        "sampling_mask": mask if no_mask else {"holes": _unmasked(row, mask["counts"])},
        "experts": None if experts is None else {**experts, "data": None},
    }
    nulls = ["rollout_indexer_topk"]
    nulls += ["rollout_log_probs"] * no_logprobs + ["rollout_routed_experts"] * (experts is None)
    # Miles names the mask where it was asked for, and knows neither name nor tensors elsewhere.
    nulls += ["rollout_sampling_mask"] * (mask is not None and no_mask)
    ending = row.turns[-1].ending if row.turns else Ending.EMPTY
    return {
        "response": "",
        "response_length": len(row) - start,
        "status": {Ending.TRUNCATED: "truncated", Ending.ABORTED: "aborted"}.get(ending, "completed"),
        "weight_versions": [[{"version": span.weights}] for span in row.ledger if span.weights is not None],
        "prefix_cache_info": {"cached_tokens": 0, "total_prompt_tokens": 0},
        "metadata": dict(row.metadata),
        "nulls": nulls,
        "reward": row.reward,
        "tito": own,
    }


def _unmasked(row: Row, counts: Sequence[int]) -> list[int]:
    """Return the positions of sampled ids without a mask; in a tensor they have their own id alone."""
    return [place for turn in row.turns for place in range(turn.start, turn.stop) if not counts[place]]
