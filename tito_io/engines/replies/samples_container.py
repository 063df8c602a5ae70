"""Read a Miles session's training samples from their safetensors container.

The container holds one tensor for each tensor field of each sample, such as `tokens.0`, and one of bytes,
`_samples_meta`: JSON with all other fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, cast

import attrs
import orjson

from tito_core import InputError, SamplingMask
from tito_core.samples import RoutedExperts
from tito_io.engines.protocol import UnsupportedError
from tito_io.extras import install

from .invariants import Check

META = "_samples_meta"
TENSORS: Mapping[str, tuple[str, str]] = {
    "tokens": ("I64", "q"),
    "loss_mask": ("U8", "B"),
    "rollout_log_probs": ("F64", "d"),
    "rollout_routed_experts": ("I32", "i"),
    "rollout_indexer_topk": ("I32", "i"),
    "rollout_sampling_mask.ids": ("I32", "i"),
    "rollout_sampling_mask.offsets": ("I64", "q"),
}
"""Each tensor's type, as the container names it and as `memoryview.cast` does."""
EMPTY = frozenset(("no_records", "all_truncated"))

Tensor = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class MilesSample:
    """One training row.

    Attributes:
        tokens: Prompt and response ids.
        response: The text of the last `response_length` ids.
        response_length: How many ids the response has.
        loss_mask: 1 where an id of the response was sampled, else 0; None where the server sends null.
        rollout_log_probs: One natural-log probability per response id; arbitrary for ids not sampled.
        rollout_routed_experts: Which experts each position was routed to.
        rollout_indexer_topk: The attention indexer's choices, in the same layout.
        rollout_sampling_mask: The sampling mask of the response; later servers send it.
        status: `completed`, `truncated` or `aborted`.
        metadata: The sample's metadata.
        reward: As the agent or the server set it.
        nulls: Names of fields that the server sends as null.
        more: All other fields: weight versions, cache counts and what later servers add.
    """

    tokens: tuple[int, ...]
    response: str
    response_length: int
    loss_mask: tuple[int, ...] | None
    rollout_log_probs: tuple[float | None, ...] | None
    rollout_routed_experts: RoutedExperts | None
    rollout_indexer_topk: RoutedExperts | None
    rollout_sampling_mask: SamplingMask | None
    status: str
    metadata: Mapping[str, Any]
    reward: Any
    nulls: frozenset[str]
    more: Mapping[str, Any] = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class MilesSamples:
    """The training samples of one session.

    Attributes:
        samples: The rows.
        session_metadata: Metadata of the whole session.
        empty_reason: Why there are no rows: `no_records` or `all_truncated`; None where there are some.
    """

    samples: tuple[MilesSample, ...]
    session_metadata: Mapping[str, Any]
    empty_reason: str | None


def library() -> Any:
    """Return the safetensors library; raises `UnsupportedError` where it is not installed."""
    try:
        import safetensors  # noqa: PLC0415  # an extra that conversations do not need
    except ImportError:
        raise UnsupportedError(f"samples come as safetensors: {install('miles')}. Nothing was sent") from None
    return safetensors


def samples(check: Check, payload: bytes) -> MilesSamples:
    """Read a samples reply; raises `InvalidReplyError` where its parts do not agree."""
    reader = library()
    try:
        tensors = dict(cast("list[tuple[str, Tensor]]", reader.deserialize(payload)))
    except reader.SafetensorError:
        check.fail("the samples are not a safetensors container")
    tensor = tensors.pop(META, None)
    if tensor is None or tensor["dtype"] != "U8" or len(tensor["shape"]) != 1:
        check.fail(f"the samples have no `{META}` of bytes")
    try:
        meta = check.typed(orjson.loads(bytes(tensor["data"])), dict, META)
    except orjson.JSONDecodeError:
        check.fail(f"the samples' `{META}` is not JSON")
    rows = tuple(
        _sample(check, tensors, place, row) for place, row in enumerate(check.get(meta, "samples", list))
    )
    if tensors:
        check.fail(f"the samples hold {min(tensors)!r:.60}, which belongs to none of {len(rows)}")
    reason = meta.get("empty_reason")
    if (reason is None) != bool(rows) or (reason is not None and reason not in EMPTY):
        check.fail(f"{len(rows)} samples, and the reason for none is {reason!r:.40}")
    session = check.get(meta, "session_metadata", dict)
    return MilesSamples(samples=rows, session_metadata=session, empty_reason=reason)


def _sample(check: Check, tensors: dict[str, Tensor], place: int, row: object) -> MilesSample:
    meta = check.typed(row, dict, f"samples[{place}]")
    fields = _Fields(check, tensors, place, frozenset(check.get(meta, "nulls", list)))
    length = check.get(meta, "response_length", int)
    tokens, logprobs = fields.numbers("tokens"), fields.numbers("rollout_log_probs")
    sample = MilesSample(
        tokens=() if tokens is None else check.ids({"tokens": list(tokens)}, "tokens"),
        response=check.get(meta, "response", str),
        response_length=length,
        loss_mask=fields.numbers("loss_mask"),
        rollout_log_probs=None if logprobs is None else check.logprobs(logprobs, length),
        rollout_routed_experts=fields.experts("rollout_routed_experts"),
        rollout_indexer_topk=fields.experts("rollout_indexer_topk"),
        rollout_sampling_mask=fields.mask(),
        status=check.get(meta, "status", str),
        metadata=check.get(meta, "metadata", dict),
        reward=meta.get("reward"),
        nulls=fields.nulls,
        more={name: value for name, value in meta.items() if name not in _FIELDS},
    )
    _agree(check, sample)
    return sample


def _agree(check: Check, sample: MilesSample) -> None:
    """Demand that a sample's lengths agree."""
    length = sample.response_length
    if not 0 <= length <= len(sample.tokens):
        check.fail(f"a response of {length} ids in a sample of {len(sample.tokens)}")
    if sample.loss_mask is not None:
        check.count("mask values", len(sample.loss_mask), "response ids", length)
        if not set(sample.loss_mask) <= {0, 1}:
            check.fail("`loss_mask` holds something other than 0 and 1")
    if sample.rollout_sampling_mask is not None:
        check.count("sampling masks", len(sample.rollout_sampling_mask), "response ids", length)
        trained = [*zip(sample.tokens[len(sample.tokens) - length :], sample.loss_mask or (), strict=False)]
        for (index, mask), kept in zip(trained, sample.rollout_sampling_mask, strict=False):
            if mask and kept and index not in kept:
                check.fail(f"a sampling mask lacks {index}, which was sampled there")


_FIELDS = {field.name for field in attrs.fields(MilesSample)} - {"more"}


@attrs.frozen
class _Fields:
    """The tensors of one sample; each is taken out once."""

    check: Check
    tensors: dict[str, Tensor]
    place: int
    nulls: frozenset[str]

    def numbers(self, name: str) -> tuple[Any, ...] | None:
        """Return a tensor's numbers in order; None for a null."""
        tensor = self._taken(name)
        if tensor is None:
            return None
        if len(tensor["shape"]) != 1:
            self.check.fail(f"`{name}` of sample {self.place} has {len(tensor['shape'])} dimensions for 1")
        view: memoryview[Any] = memoryview(tensor["data"])
        return tuple(view.cast(cast("Literal['i']", TENSORS[name][1])))

    def experts(self, name: str) -> RoutedExperts | None:
        """Return routed experts as they came: rows, layers, experts per layer."""
        tensor = self._taken(name)
        if tensor is None:
            return None
        return RoutedExperts(data=bytes(tensor["data"]), dtype="int32", shape=tuple(tensor["shape"]))

    def mask(self) -> SamplingMask | None:
        """Return the sampling mask of the response, which only later servers send, as ids and offsets.

        The ids of position i are `ids[offsets[i]:offsets[i + 1]]`.
        """
        if f"rollout_sampling_mask.ids.{self.place}" not in self.tensors:
            return None
        ids = self.numbers("rollout_sampling_mask.ids") or ()
        offsets = self.numbers("rollout_sampling_mask.offsets") or (0,)
        if offsets[0]:
            self.check.fail(f"the sampling mask of sample {self.place} begins at {offsets[0]}, not at 0")
        try:
            return SamplingMask(ids, [end - start for start, end in pairwise(offsets)])
        except InputError as error:
            self.check.fail(f"the sampling mask of sample {self.place} does not add up: {error}")

    def _taken(self, name: str) -> Tensor | None:
        if name in self.nulls:
            return None
        tensor = self.tensors.pop(f"{name}.{self.place}", None)
        if tensor is None:
            self.check.fail(f"`{name}` of sample {self.place} is missing, and not listed as null")
        if tensor["dtype"] != TENSORS[name][0]:
            self.check.fail(f"`{name}` of sample {self.place} is {tensor['dtype']}, not {TENSORS[name][0]}")
        return tensor
