"""A session's training samples: a safetensors container becomes values, or an error that holds it.

The container holds a tensor for every field of every sample, `tokens.0` and so on, and one of bytes,
`_samples_meta`, which is JSON and says the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

import attrs
import orjson

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
class SamplingMask:
    """What sampled ids were chosen among: the one at position i among `ids[offsets[i]:offsets[i + 1]]`."""

    ids: tuple[int, ...]
    offsets: tuple[int, ...]


@attrs.frozen(kw_only=True)
class MilesSample:
    """One training row."""

    tokens: tuple[int, ...]
    """Prompt and response ids."""
    response: str
    """The response's text: what the last `response_length` ids spell."""
    response_length: int
    loss_mask: tuple[int, ...] | None
    """1 where an id of the response was sampled; None where the server sends null."""
    rollout_log_probs: tuple[float | None, ...] | None
    """One for each id of the response; what stands where nothing was sampled is no log-probability."""
    rollout_routed_experts: RoutedExperts | None
    rollout_indexer_topk: RoutedExperts | None
    rollout_sampling_mask: SamplingMask | None
    status: str
    """`completed`, `truncated` or `aborted`, as Miles says it."""
    metadata: Mapping[str, Any]
    reward: Any
    nulls: frozenset[str]
    """Fields that the server says are null."""
    more: Mapping[str, Any] = attrs.field(repr=False)
    """All that the server says besides: weight versions, cache counts and what later servers add."""


@attrs.frozen(kw_only=True)
class MilesSamples:
    """The samples of one session."""

    samples: tuple[MilesSample, ...]
    session_metadata: Mapping[str, Any]
    empty_reason: str | None
    """Why there is none: `no_records` or `all_truncated`."""


def library() -> Any:
    """Return the library that reads the container; raises `UnsupportedError` where it is not installed."""
    try:
        import safetensors  # noqa: PLC0415  # an extra, which conversations do without
    except ImportError:
        raise UnsupportedError(f"samples come as safetensors: {install('miles')}. Nothing was sent") from None
    return safetensors


def samples(check: Check, payload: bytes) -> MilesSamples:
    """Read a samples reply; raises `InvalidReplyError` where its parts do not agree."""
    tensors = _container(check, payload)
    meta = _meta(check, tensors)
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


def _container(check: Check, payload: bytes) -> dict[str, Tensor]:
    """Return the tensors by name, as types, shapes and bytes; no array library is needed for that."""
    reader = library()
    try:
        found = reader.deserialize(payload)
    except reader.SafetensorError:
        check.fail("the samples are no safetensors container")
    return dict(cast("list[tuple[str, Tensor]]", found))


def _meta(check: Check, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the JSON part."""
    held = tensors.pop(META, None)
    if held is None or held["dtype"] != "U8" or len(held["shape"]) != 1:
        check.fail(f"the samples have no `{META}` of bytes")
    try:
        found = orjson.loads(bytes(held["data"]))
    except orjson.JSONDecodeError:
        check.fail(f"the samples' `{META}` is no JSON")
    return check.get({META: found}, META, dict)


def _sample(check: Check, tensors: dict[str, Tensor], place: int, row: object) -> MilesSample:
    said = check.get({f"samples[{place}]": row}, f"samples[{place}]", dict)
    fields = _Fields(check, tensors, place, frozenset(check.get(said, "nulls", list)))
    length = check.get(said, "response_length", int)
    sample = MilesSample(
        tokens=fields.ids("tokens") or (),
        response=check.get(said, "response", str),
        response_length=length,
        loss_mask=fields.numbers("loss_mask"),
        rollout_log_probs=fields.logprobs(length),
        rollout_routed_experts=fields.experts("rollout_routed_experts"),
        rollout_indexer_topk=fields.experts("rollout_indexer_topk"),
        rollout_sampling_mask=fields.mask(),
        status=check.get(said, "status", str),
        metadata=check.get(said, "metadata", dict),
        reward=said.get("reward"),
        nulls=fields.nulls,
        more={name: value for name, value in said.items() if name not in _FIELDS},
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


_FIELDS = {field.name for field in attrs.fields(MilesSample)} - {"more"}


@attrs.frozen
class _Fields:
    """The tensors of one sample; each is taken out once."""

    check: Check
    tensors: dict[str, Tensor]
    place: int
    nulls: frozenset[str]

    def numbers(self, name: str) -> tuple[Any, ...] | None:
        """Return a tensor's numbers in their order; None for a null."""
        tensor = self._taken(name)
        if tensor is None:
            return None
        if len(tensor["shape"]) != 1:
            self.check.fail(f"`{name}` of sample {self.place} has {len(tensor['shape'])} dimensions for 1")
        view: memoryview[Any] = memoryview(tensor["data"])
        return tuple(view.cast(cast("Literal['i']", TENSORS[name][1])))

    def ids(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's ids."""
        found = self.numbers(name)
        return None if found is None else self.check.ids({name: list(found)}, name)

    def logprobs(self, length: int) -> tuple[float | None, ...] | None:
        """Return the log-probabilities, one for each id of the response."""
        found = self.numbers("rollout_log_probs")
        return None if found is None else self.check.logprobs(found, length)

    def experts(self, name: str) -> RoutedExperts | None:
        """Return routing as it came: rows, layers, experts a row."""
        tensor = self._taken(name)
        if tensor is None:
            return None
        return RoutedExperts(data=bytes(tensor["data"]), dtype="int32", shape=tuple(tensor["shape"]))

    def mask(self) -> SamplingMask | None:
        """Return what each id was chosen among, which only later servers send."""
        if f"rollout_sampling_mask.ids.{self.place}" not in self.tensors:
            return None
        ids = self.numbers("rollout_sampling_mask.ids") or ()
        return SamplingMask(ids=ids, offsets=self.numbers("rollout_sampling_mask.offsets") or ())

    def _taken(self, name: str) -> Tensor | None:
        if name in self.nulls:
            return None
        tensor = self.tensors.pop(f"{name}.{self.place}", None)
        if tensor is None:
            self.check.fail(f"`{name}` of sample {self.place} is missing, and not said to be null")
        if tensor["dtype"] != TENSORS[name][0]:
            self.check.fail(f"`{name}` of sample {self.place} is {tensor['dtype']}, not {TENSORS[name][0]}")
        return tensor
