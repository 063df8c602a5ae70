"""A session's samples in either form: the session protocol's container, and JSON for who asks for that."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import orjson
import pytest
from safetensors.numpy import load

from tests.io.serve.gateway import (
    HELLO,
    Reporting,
    Scripted,
    chat,
    client,
    opened,
    scripted_gateway,
    user,
)
from tito_core.samples import RoutedExperts

pytestmark = pytest.mark.anyio
JSON = {"accept": "application/json"}


class Routed(Scripted):
    """An engine that says which experts each id went through, and for some no log-probability."""

    blind = False

    def _turn(self, prompt: list[int], n: int) -> Any:
        reply = super()._turn(prompt, n)
        rows = len(reply.prompt_ids) + len(reply.completion_ids) - 1
        experts = RoutedExperts(
            data=bytes(place % 7 for place in range(rows * 6)), dtype="uint8", shape=(rows, 3, 2)
        )
        values = (None,) * len(reply.completion_ids) if self.blind else reply.logprobs
        return attrs.evolve(reply, routed_experts=experts, logprobs=values)


async def talked(http: Any) -> str:
    """Return a session with two branches."""
    name = await opened(http)
    said = (await chat(http, name, HELLO))["choices"][0]["message"]
    for text in ("one", "other"):
        await chat(http, name, [*HELLO, said, user(text)])
    return name


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_json_says_what_the_container_says(method: str, blind: bool) -> None:
    engine = Routed()
    engine.blind = blind
    async with client(scripted_gateway(engine)) as http:
        name = await talked(http)
        container = await http.request(method, f"/sessions/{name}/samples")
        plain = await http.request(method, f"/sessions/{name}/samples", headers=JSON)
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
    async with client(scripted_gateway(Scripted())) as http:
        name = await talked(http)
        answer = await http.post(f"/sessions/{name}/samples", headers={"accept": accept})
    assert answer.headers["content-type"] == f"application/{kind}"


async def test_a_length_is_kept_to_in_either_manner() -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await talked(http)
        path = f"/sessions/{name}/samples"
        asked = await http.get(f"{path}?max_seq_len=1", headers=JSON)
        posted = await http.post(path, json={"max_seq_len": 1}, headers=JSON)
        assert asked.json()["empty_reason"] == posted.json()["empty_reason"] == "all_truncated"
        for wrong in ("0", "-3", "many"):
            assert (await http.get(f"{path}?max_seq_len={wrong}")).status_code == 400
        for value in (0, -3, "many"):
            assert (await http.post(path, json={"max_seq_len": value})).status_code == 400


async def test_a_sample_says_all_that_is_known_of_its_turns() -> None:
    gateway = scripted_gateway(Reporting(), clock=lambda: 1_000.25)
    async with client(gateway) as http:
        name = await opened(http)
        said = (await chat(http, name, [user("a")]))["choices"][0]["message"]
        await chat(http, name, [user("a"), said, user("b")])
        posted = {"metadata": {"reward": 2.5, "task": "t"}}
        found = (await http.post(f"/sessions/{name}/samples", headers=JSON, json=posted)).json()
        metadata = (await http.get(f"/sessions/{name}")).json()["metadata"]
        async with gateway.sessions.using(name) as session:
            first, second = session.commits.values()
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
                },
                **posted["metadata"],
            },
        }
    ]


@pytest.mark.parametrize(("finish", "status"), [("stop", "completed"), ("length", "truncated")])
async def test_a_sample_says_how_its_last_turn_ended(finish: str, status: str) -> None:
    async with client(scripted_gateway(Scripted(finish=finish))) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        (sample,) = (await http.get(f"/sessions/{name}/samples", headers=JSON)).json()["samples"]
    assert sample["status"] == status


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"])
async def test_experts_of_any_width_become_32_bit_numbers(dtype: str) -> None:
    class Wide(Scripted):
        def _turn(self, prompt: list[int], n: int) -> Any:
            reply = super()._turn(prompt, n)
            numbers = np.arange(len(prompt) + 2, dtype=dtype)
            experts = RoutedExperts(data=numbers.tobytes(), dtype=dtype, shape=(len(numbers), 1, 1))
            return attrs.evolve(reply, routed_experts=experts)

    async with client(scripted_gateway(Wide())) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        found = load((await http.get(f"/sessions/{name}/samples")).content)
    experts, tokens = found["rollout_routed_experts.0"], found["tokens.0"]
    assert experts.dtype == np.int32
    assert experts.shape == (len(tokens) - 1, 1, 1)
    assert experts.ravel().tolist() == list(range(len(tokens) - 1))


async def test_an_engine_that_reports_no_weights_and_no_cache_has_none() -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        (sample,) = (await http.get(f"/sessions/{name}/samples", headers=JSON)).json()["samples"]
    assert (sample["weight_versions"], sample["prefix_cache_info"]["cached_tokens"]) == ([], 0)


async def test_what_a_collector_does_not_say_is_not_there() -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await talked(http)
        metadata = (await http.get(f"/sessions/{name}")).json()["metadata"]
        for body in ({}, {"metadata": None}):
            found = (await http.post(f"/sessions/{name}/samples", headers=JSON, json=body)).json()
            assert found["session_metadata"] == metadata
            assert {"lifecycle", "accumulated_token_ids", "tito_session_mismatch", "leaf"} == set(
                found["samples"][0]["metadata"]
            )
        empty = (await http.post(f"/sessions/{name}/samples", headers=JSON, json={"metadata": {}})).json()
        assert empty["session_metadata"] == {**metadata, "agent": {}}
        odd = await http.post(f"/sessions/{name}/samples", json={"metadata": [1]})
        assert (odd.status_code, "metadata is not a JSON object" in odd.text) == (400, True)
