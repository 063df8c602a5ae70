"""Many agents at once over real sockets: no error, no mismatch; a benchmark runs more of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.gateway import agents as gateway_load
from benchmarks.gateway.agents import load, whole_answer
from tests.io.serve.gateway import embedded_gateway, served
from tito_io.serve.app import app
from tito_io.serve.sqlite import SqliteStore

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_many_sessions_at_once_have_no_errors_and_no_mismatches(tmp_path: Path) -> None:
    gateway = embedded_gateway(SqliteStore.open(tmp_path / "s.db"))
    async with served(app(gateway)) as url:
        agents = await load(url, 16, 8)
        assert await gateway.sessions.store.count() == 0  # each agent has deleted its session
    assert [agent.errors for agent in agents] == [[]] * 16
    assert [agent.mismatches for agent in agents] == [0] * 16
    assert [len(agent.seconds) for agent in agents] == [8] * 16


async def test_a_changed_id_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script looks: of every prompt that does not come in a stream the first id is changed."""

    def changed(body: Any) -> Any:
        prompt, ids, message = whole_answer(body)
        return [prompt[0] + len(prompt), *prompt[1:]], ids, message

    monkeypatch.setattr(gateway_load, "whole_answer", changed)
    async with served(app(embedded_gateway())) as url:
        agents = await load(url, 2, 3)
    assert [agent.mismatches > 0 for agent in agents] == [True, False]
