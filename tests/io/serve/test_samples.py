"""A session's samples in either form: the session protocol's container, and JSON for who asks for that."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import orjson
import pytest
from safetensors.numpy import load

from tests.io.serve.gateway import HELLO, Reporting, Scripted, Talk, talking, user
from tito_core.samples import RoutedExperts

pytestmark = pytest.mark.anyio
JSON = {"accept": "application/json"}


async def talked(talk: Talk) -> None:
    """Take turns on two branches."""
    said = await talk.said(HELLO)
    for text in ("one", "other"):
        await talk.chat([*HELLO, said, user(text)])


class Routed(Scripted):
    """An engine that says which experts each id went through, as numbers of some width."""

    dtype = "uint8"

    def one_turn(self, prompt: list[int], n: int) -> Any:
        reply = super().one_turn(prompt, n)
        rows = len(reply.prompt_ids) + len(reply.completion_ids) - 1
        numbers = (np.arange(rows * 6) % 7).astype(self.dtype)
        experts = RoutedExperts(data=numbers.tobytes(), dtype=self.dtype, shape=(rows, 3, 2))
        return attrs.evolve(reply, routed_experts=experts)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_json_says_what_the_container_says(method: str, blind: bool) -> None:
    """An engine may say no log-probability of an id: then the field is left out, and none is invented."""
    async with talking(Routed(told={"logprobs": (-0.5, None, -0.5)} if blind else {})) as talk:
        await talked(talk)
        path = f"/sessions/{talk.name}/samples"
        container = await talk.http.request(method, path)
        plain = await talk.http.request(method, path, headers=JSON)
    assert container.headers["content-type"] == "application/octet-stream"
    assert plain.headers["content-type"] == "application/json"
    tensors, found = load(container.content), plain.json()
    meta = orjson.loads(tensors.pop("_samples_meta").tobytes())
    assert int.from_bytes(container.content[:8], "little") % 8 == 0  # so that numbers are aligned
    assert len(found["samples"]) == len(meta["samples"]) == 2
    for place, (row, said) in enumerate(zip(found["samples"], meta["samples"], strict=True)):
        assert row.items() >= said.items()
        for name in row.keys() - said.keys():
            tensor = tensors.pop(f"{name}.{place}", None)
            assert row[name] == (None if tensor is None else tensor.tolist())
            assert (tensor is None) == (name in said["nulls"])
    assert tensors == {}
    assert found["session_metadata"] == meta["session_metadata"]
    assert (found["samples"][0]["rollout_log_probs"] is None) is blind


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "octet-stream"),
        ("", "octet-stream"),
        ("application/json, application/octet-stream", "octet-stream"),
        ("application/octet-stream", "octet-stream"),
        ("Application/JSON;q=0.9, */*", "json"),
    ],
)
async def test_the_container_is_what_everybody_gets_who_takes_it(accept: str, kind: str) -> None:
    async with talking() as talk:
        answer = await talk.post({}, "/samples", headers={"accept": accept})
    assert answer.headers["content-type"] == f"application/{kind}"


async def test_a_length_is_kept_to_in_either_manner() -> None:
    async with talking() as talk:
        await talked(talk)
        asked = await talk.get("/samples?max_seq_len=1", headers=JSON)
        posted = await talk.post({"max_seq_len": 1}, "/samples", headers=JSON)
        assert asked.json()["empty_reason"] == posted.json()["empty_reason"] == "all_truncated"
        for wrong in (0, -3, "many"):
            assert (await talk.get(f"/samples?max_seq_len={wrong}")).status_code == 400
            assert (await talk.post({"max_seq_len": wrong}, "/samples")).status_code == 400


async def test_a_sample_says_all_that_is_known_of_its_turns() -> None:
    async with talking(Reporting(), clock=lambda: 1_000.25) as talk:
        said = await talk.said([user("a")])
        await talk.chat([user("a"), said, user("b")])
        posted = {"metadata": {"reward": 2.5, "task": "t"}}
        found = (await talk.post(posted, "/samples", headers=JSON)).json()
        metadata = (await talk.get()).json()["metadata"]
        first, second = await talk.commits()
    ids, start = second.step.ids.tolist(), len(first.step.prompt_ids)
    trained = [1, 1, 1, *[0] * (len(ids) - start - 6), 1, 1, 1]
    names = [first.name, second.name]
    assert found["session_metadata"] == {**metadata, "agent": posted["metadata"]}
    assert found["empty_reason"] is None
    assert found["samples"] == [
        {
            "tokens": ids,
            "loss_mask": trained,
            "rollout_log_probs": [-0.5 * one for one in trained],
            "rollout_routed_experts": [[[place]] for place in range(len(ids) - 1)],
            "rollout_indexer_topk": None,
            "nulls": ["rollout_indexer_topk"],
            "response": "",
            "response_length": len(trained),
            "status": "completed",
            "weight_versions": ["step 2", "step 4"],
            "prefix_cache_info": {"cached_tokens": 4, "total_prompt_tokens": start + len(ids) - 3},
            "reward": 2.5,
            "metadata": {
                "lifecycle": [
                    {"t0": None, "t1": first.at, "turn": 1, "req_ts": 1_000.25},
                    {"t0": None, "t1": second.at, "turn": 2, "req_ts": 1_000.25, "prev_t1": first.at},
                ],
                "accumulated_token_ids": ids,
                "tito_session_mismatch": [],
                "leaf": {
                    "node_id": second.name,
                    "parent": first.name,
                    "path_node_ids": names,
                    "response_id": second.name,
                    "follows": None,
                    "auxiliary": False,
                    "agent": "main",
                },
                **posted["metadata"],
            },
        }
    ]


@pytest.mark.parametrize(("finish", "status"), [("stop", "completed"), ("length", "truncated")])
async def test_a_sample_says_how_its_last_turn_ended(finish: str, status: str) -> None:
    """An engine that reports no weights and no cache has none."""
    async with talking(Scripted(finish=finish)) as talk:
        await talk.chat(HELLO)
        (sample,) = (await talk.get("/samples", headers=JSON)).json()["samples"]
    assert sample["status"] == status
    assert (sample["weight_versions"], sample["prefix_cache_info"]["cached_tokens"]) == ([], 0)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"])
async def test_experts_of_any_width_become_32_bit_numbers(dtype: str) -> None:
    engine = Routed()
    engine.dtype = dtype
    async with talking(engine) as talk:
        await talk.chat(HELLO)
        found = load((await talk.get("/samples")).content)
    experts, rows = found["rollout_routed_experts.0"], len(found["tokens.0"]) - 1
    assert experts.dtype == np.int32
    assert experts.shape == (rows, 3, 2)
    assert experts.ravel().tolist() == [place % 7 for place in range(rows * 6)]


async def test_what_a_collector_does_not_say_is_not_there() -> None:
    async with talking() as talk:
        await talked(talk)
        metadata = (await talk.get()).json()["metadata"]
        for body in ({}, {"metadata": None}):
            found = (await talk.post(body, "/samples", headers=JSON)).json()
            assert found["session_metadata"] == metadata
            own = {"lifecycle", "accumulated_token_ids", "tito_session_mismatch", "leaf"}
            assert set(found["samples"][0]["metadata"]) == own
        empty = (await talk.post({"metadata": {}}, "/samples", headers=JSON)).json()
        assert empty["session_metadata"] == {**metadata, "agent": {}}
        odd = await talk.post({"metadata": [1]}, "/samples")
        assert (odd.status_code, "metadata is not a JSON object" in odd.text) == (400, True)
