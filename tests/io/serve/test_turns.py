"""The name under which turns are answered."""

from __future__ import annotations

import attrs
import pytest

from tests.io.serve.gateway import HELLO, Scripted, chat, client, opened
from tito_io.engines.http_engine import ServedModel
from tito_io.serve.gateway import build_gateway
from tito_io.serve.store import MemoryStore

pytestmark = pytest.mark.anyio


@attrs.define
class Named(Scripted):
    """An engine that says which model it serves."""

    questions: int = 0

    async def served(self) -> ServedModel:
        self.questions += 1
        return ServedModel(name="the engine's")


@pytest.mark.parametrize(("model", "questions"), [("ours", 0), ("", 1)])
async def test_an_engine_is_asked_once_for_its_model_where_nobody_named_it(
    model: str, questions: int
) -> None:
    engine = Named()
    async with client(build_gateway(engine, MemoryStore(), model=model)) as http:
        for _ in range(2):
            answer = await chat(http, await opened(http), HELLO)
            assert answer["model"] == (model or "the engine's")
    assert engine.questions == questions


async def test_an_engine_that_serves_no_model_by_name_gives_its_own() -> None:
    async with client(build_gateway(Scripted(), MemoryStore(), model="")) as http:
        assert (await chat(http, await opened(http), HELLO))["model"] == "scripted"
