"""What a gateway learned of a template is kept beside the profiles of the model's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve import gateway as gateways
from tests.io.serve.gateway import HELLO, Scripted, embedded_gateway, scripted_gateway, talking
from tito_io.client.certificates import Certificates
from tito_io.embedded import write_family
from tito_io.families import Family
from tito_io.serve.gateway import Gateway

pytestmark = pytest.mark.anyio


async def renders(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, **fields: Any) -> list[int]:
    """Return how many questions each of three turns with such fields of a new gateway took."""
    counts, guard = [0], gateway.turns.guard
    assert guard is not None
    plain = type(guard).tokenize_fn

    def counting(self: Any, rendering: Any) -> Any:
        bound = plain(self, rendering)

        async def render(messages: Any, *, add_generation_prompt: bool) -> Any:
            counts[-1] += 1
            return await bound(messages, add_generation_prompt=add_generation_prompt)

        return render

    monkeypatch.setattr(type(guard), "tokenize_fn", counting)
    gateway.turns.sampler.renderer = guard.tokenize_fn
    async with talking(gateway) as talk:
        messages = list(HELLO)
        for _ in range(3):
            messages = await talk.turns(1, messages, max_tokens=20, **fields)
            counts.append(0)
    monkeypatch.undo()
    return counts[:-1]


async def test_a_second_gateway_knows_what_the_first_has_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_family(tmp_path / "model")
    with pytest.MonkeyPatch.context() as fresh:
        fresh.setenv("TITO_CACHE", str(tmp_path / "cache"))
        fresh.setattr(gateways, "family", lambda: Family.load(folder))  # a family remembers by itself, too
        first = await renders(embedded_gateway(), monkeypatch, tools=[WEATHER])
        second = await renders(embedded_gateway(), monkeypatch, tools=[WEATHER])
        without = await renders(embedded_gateway(), monkeypatch)
    assert max(first) > 15
    assert max(second[:2]) <= 3
    assert second[2] <= 7  # its turn says nothing, which no case has
    assert max(without) > 3  # a template may end turns in another way where there are tools


def test_equal_tools_and_arguments_are_one_rendering_and_the_oldest_goes() -> None:
    turns = scripted_gateway(Scripted()).turns
    turns.certificates = Certificates(most=2)
    found = [turns.rendering([{"n": number}], {"a": 1}) for number in range(4)]
    assert [turns.rendering([{"n": number}], {"a": 1}) is found[number] for number in (2, 3)] == [True, True]
    again = turns.rendering([{"n": 0}], {"a": 1})
    assert again == found[0]
    assert again is not found[0]
    assert turns.rendering([{"n": 3}], {"a": 2}) != found[3]
    assert turns.rendering([{"n": 3}], {"a": 1}) is not found[3]
