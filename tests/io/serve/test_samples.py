"""A session's samples in either form: the session protocol's container, and JSON for who asks for that."""

from __future__ import annotations

from typing import Any

import attrs
import orjson
import pytest
from safetensors.numpy import load

from tests.io.serve.gateway import HELLO, Scripted, chat, client, opened, scripted_gateway, user
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
