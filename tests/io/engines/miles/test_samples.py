"""The samples of a session: a binary container becomes values whose lengths agree, or an error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest
from safetensors.numpy import load, save

from tests.io.engines.miles.miles_server import FIRST_SAMPLED, Fake
from tests.io.engines.miles.test_session import HELLO, continued, opened
from tito_core import SamplingMask
from tito_io.engines.miles import MilesRouter
from tito_io.engines.protocol import EngineAnswer, InvalidReplyError, UnsupportedError
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import META, MilesSamples, samples

pytestmark = pytest.mark.anyio

ROW = {
    "response": "hi",
    "response_length": 2,
    "status": "completed",
    "weight_versions": [[{"version": "1"}]],
    "prefix_cache_info": {"cached_tokens": 1, "total_prompt_tokens": 3},
    "metadata": {"leaf": {"node_id": 0}},
    "nulls": ["rollout_indexer_topk"],
    "reward": 0.5,
}
TENSORS: Mapping[str, Any] = {
    "tokens.0": np.asarray([1, 2, 3, 7, 8], dtype=np.int64),
    "loss_mask.0": np.asarray([1, 0], dtype=np.uint8),
    "rollout_log_probs.0": np.asarray([-0.25, 0.0], dtype=np.float64),
    "rollout_routed_experts.0": np.arange(16, dtype=np.int32).reshape(4, 2, 2),
}


def payload(
    tensors: Mapping[str, Any] | None = None, *, meta: Any = None, empty: str | None = None, **row: Any
) -> bytes:
    """Return a container of one sample, in which the tensors given stand in the place of the usual ones."""
    said = meta or {"samples": [ROW | row], "session_metadata": {"a": 1}, "empty_reason": empty}
    held = {**TENSORS, **(tensors or {}), META: np.frombuffer(orjson.dumps(said), dtype=np.uint8)}
    return save({name: tensor for name, tensor in held.items() if tensor is not None})


def read(raw: bytes) -> MilesSamples:
    return samples(Check("POST /samples", EngineAnswer(200, raw)), raw)


def test_a_sample_holds_what_the_server_computed() -> None:
    found = read(payload())
    (sample,) = found.samples
    assert sample.tokens == (1, 2, 3, 7, 8)
    assert (sample.response, sample.response_length, sample.status) == ("hi", 2, "completed")
    assert (sample.loss_mask, sample.rollout_log_probs) == ((1, 0), (-0.25, 0.0))
    experts = sample.rollout_routed_experts
    assert experts is not None
    assert (experts.dtype, experts.shape, experts.start) == ("int32", (4, 2, 2), 0)
    assert np.frombuffer(experts.data, np.int32).tolist() == [*range(16)]
    assert sample.rollout_indexer_topk is None
    assert sample.rollout_sampling_mask is None
    assert (sample.metadata, sample.reward) == ({"leaf": {"node_id": 0}}, 0.5)
    assert sample.nulls == {"rollout_indexer_topk"}
    assert sample.more == {name: ROW[name] for name in ("weight_versions", "prefix_cache_info")}
    assert (found.session_metadata, found.empty_reason) == ({"a": 1}, None)


def test_nulls_are_none_and_no_tokens_are_none_at_all() -> None:
    names = ["tokens", "loss_mask", "rollout_log_probs", "rollout_routed_experts", "rollout_indexer_topk"]
    nothing = dict.fromkeys(TENSORS)
    (sample,) = read(payload(nothing, nulls=names, response_length=0)).samples
    assert (sample.tokens, sample.loss_mask, sample.rollout_log_probs) == ((), None, None)
    assert sample.rollout_routed_experts is None


def test_a_sampling_mask_is_read_where_a_later_server_sends_one() -> None:
    mask = {
        "rollout_sampling_mask.ids.0": np.asarray([7, 9, 8], dtype=np.int32),
        "rollout_sampling_mask.offsets.0": np.asarray([0, 2, 3], dtype=np.int64),
    }
    (sample,) = read(payload(mask)).samples
    assert sample.rollout_sampling_mask == SamplingMask.of([[7, 9], [8]])


@pytest.mark.parametrize(
    ("ids", "offsets", "problem"),
    [
        ([7, 9, 8], [0, 2], "does not add up"),
        ([7, 9, 8], [0, 4, 3], "does not add up"),
        ([7, 9, 8], [1, 2, 4], "begins at 1"),
        ([7, 9, 8], [0, 3], "1 sampling masks for 2 response ids"),
        ([6, 9, 8], [0, 2, 3], "lacks 7, which was sampled"),
    ],
)
def test_a_sampling_mask_that_does_not_line_up_is_refused(
    ids: list[int], offsets: list[int], problem: str
) -> None:
    mask = {
        "rollout_sampling_mask.ids.0": np.asarray(ids, dtype=np.int32),
        "rollout_sampling_mask.offsets.0": np.asarray(offsets, dtype=np.int64),
    }
    with pytest.raises(InvalidReplyError, match=problem):
        read(payload(mask))


@pytest.mark.parametrize("reason", ["no_records", "all_truncated"])
def test_no_samples_have_a_reason(reason: str) -> None:
    meta = {"samples": [], "session_metadata": {}, "empty_reason": reason}
    assert read(payload(dict.fromkeys(TENSORS), meta=meta)).empty_reason == reason


NOTHING = dict.fromkeys(TENSORS)
BROKEN: Mapping[str, tuple[bytes, str]] = {
    "no container": (b"{}", "not a safetensors container"),
    "an empty answer": (b"", "not a safetensors container"),
    "half a container": (payload()[:-9], "not a safetensors container"),
    "no meta": (save(dict(TENSORS)), "no `_samples_meta`"),
    "meta of numbers": (save({META: np.zeros(3)}), "no `_samples_meta` of bytes"),
    "meta that is no JSON": (save({META: np.zeros(3, dtype=np.uint8)}), "not JSON"),
    "meta that is no object": (payload(meta=[1]), "is list, where a dict"),
    "a tensor too many": (
        payload({"tokens.1": TENSORS["tokens.0"]}),
        "'tokens.1', which belongs to none of 1",
    ),
    "a tensor too few": (payload({"loss_mask.0": None}), "`loss_mask` of sample 0 is missing"),
    "another type": (payload({"tokens.0": np.zeros(5, dtype=np.int32)}), "`tokens` of sample 0 is I32"),
    "two dimensions": (payload({"tokens.0": np.zeros((5, 1), dtype=np.int64)}), "2 dimensions for 1"),
    "a short mask": (payload({"loss_mask.0": np.ones(1, dtype=np.uint8)}), "1 mask values for 2"),
    "a mask of twos": (payload({"loss_mask.0": np.full(2, 2, dtype=np.uint8)}), "other than 0 and 1"),
    "few log-probabilities": (payload({"rollout_log_probs.0": np.zeros(1)}), "1 log-probabilities for 2"),
    "logits": (payload({"rollout_log_probs.0": np.ones(2)}), "above 0"),
    "no number": (payload({"rollout_log_probs.0": np.full(2, np.nan)}), "is not a number"),
    "a negative id": (payload({"tokens.0": np.full(5, -1)}), "negative id -1"),
    "a response longer than the sample": (payload(response_length=6), "6 log-probabilities|2 log-prob"),
    "no nulls": (payload(nulls=None), "`nulls` is null or missing"),
    "no reason": (
        payload(NOTHING, meta={"samples": [], "session_metadata": {}, "empty_reason": None}),
        "0 samples, and the reason for none is None",
    ),
    "an unknown reason": (
        payload(NOTHING, meta={"samples": [], "session_metadata": {}, "empty_reason": "bored"}),
        "'bored'",
    ),
    "a reason beside a sample": (payload(empty="no_records"), "1 samples, and the reason"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_samples_that_do_not_hold_together_are_refused(broken: str) -> None:
    raw, told = BROKEN[broken]
    with pytest.raises(InvalidReplyError, match=told) as caught:
        read(raw)
    assert caught.value.answer is not None
    assert caught.value.answer.body == raw


def test_a_response_is_never_longer_than_its_sample() -> None:
    names = ["loss_mask", "rollout_log_probs", "rollout_routed_experts", "rollout_indexer_topk"]
    raw = payload({**NOTHING, "tokens.0": TENSORS["tokens.0"]}, nulls=names, response_length=6)
    with pytest.raises(InvalidReplyError, match="a response of 6 ids in a sample of 5"):
        read(raw)


def test_the_container_is_what_the_library_of_the_server_writes() -> None:
    assert load(payload())["tokens.0"].tolist() == [1, 2, 3, 7, 8]


async def test_without_the_library_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    fake = Fake()

    async def agent(**_: Any) -> None:
        pytest.fail("nothing may be sampled")

    async with MilesRouter("http://miles", transport=fake.transport) as router:
        with pytest.raises(UnsupportedError, match=r"tito-kernel\[miles\]"):
            await router.run(agent, HELLO)
        async with router.session() as session:
            await session.chat({"messages": HELLO})  # conversations do without
            with pytest.raises(UnsupportedError, match="Nothing was sent"):
                await session.samples()
    assert fake.bodies("/samples") == []


# Through a server.


@pytest.mark.parametrize("later", [False, True])
async def test_every_sampled_id_of_a_session_is_trained_once(later: bool) -> None:
    fake = Fake(later=later)
    async with opened(fake) as session:
        first = await session.chat({"messages": HELLO})
        second = await session.chat({"messages": continued(first)})
        (sample,) = (await session.samples()).samples
    assert sample.tokens == (*second.prompt_ids, *second.completion_ids)
    assert sample.loss_mask is not None
    tail = sample.tokens[-sample.response_length :]
    trained = [one for one, mask in zip(tail, sample.loss_mask, strict=True) if mask]
    assert trained == fake.sampled
    assert min(trained) == FIRST_SAMPLED


async def test_a_branch_has_a_sample_of_its_own_and_is_told_what_the_agent_said() -> None:
    fake = Fake(tree=True)
    async with opened(fake) as session:
        first = await session.chat({"messages": HELLO})
        for text in ("left", "right"):
            await session.chat({"messages": continued(first, {"role": "user", "content": text})})
        found = await session.samples(metadata={"reward": 1.0})
    assert len(found.samples) == 2
    assert found.session_metadata["agent"] == {"reward": 1.0}
    assert fake.bodies("/samples") == [{"max_seq_len": None, "metadata": {"reward": 1.0}}]


@pytest.mark.parametrize(("length", "rows"), [(None, 1), (9, 1), (1, 0)])
async def test_samples_are_cut_by_the_server(length: int | None, rows: int) -> None:
    fake = Fake()
    async with opened(fake) as session:
        await session.chat({"messages": [{"role": "user", "content": "a"}]})
        found = await session.samples(max_seq_len=length)
    assert len(found.samples) == rows
    assert all(length is None or len(sample.tokens) <= length for sample in found.samples)
    assert found.empty_reason == (None if rows else "all_truncated")


async def test_a_session_without_turns_has_no_samples() -> None:
    async with opened(Fake()) as session:
        assert (await session.samples()).empty_reason == "no_records"
