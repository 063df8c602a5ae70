"""A gateway behind which a router picks workers: what it names to the router, and what it shows."""

from __future__ import annotations

import logging
from hashlib import sha256

import attrs
import pytest

from tests.io.serve.gateway import HELLO, Scripted, chat, client, opened, scripted_gateway, user
from tito_io.engines.protocol import Reply, Sampling, Watch
from tito_io.serve import metrics
from tito_io.serve.commit import decode, encode
from tito_io.serve.metrics import Metrics
from tito_io.serve.records import stored_reply

pytestmark = pytest.mark.anyio

SAID = {"role": "assistant", "content": "ok"}


@attrs.define
class Routed(Scripted):
    """An engine behind a router that names the worker of each turn, in turn."""

    workers: tuple[str, ...] = ("7", "8")

    async def _reply(self, prompt: list[int], sampling: Sampling, watch: Watch | None) -> Reply:
        reply = await super()._reply(prompt, sampling, watch)
        place = len(self.asked) - 1
        usage = attrs.evolve(reply.usage, cached_tokens=len(prompt) // 2)
        return attrs.evolve(
            reply, usage=usage, request_id=f"request-{place}", worker=self.workers[place % len(self.workers)]
        )


async def test_all_turns_of_a_session_have_one_name_that_does_not_reveal_its_id() -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine)) as http:
        sessions = [await opened(http), await opened(http)]
        for name in sessions:
            await chat(http, name, HELLO)
            await chat(http, name, [*HELLO, SAID, user()])
    named = [sampling.conversation for _, _, sampling in engine.asked]
    digests = [sha256(name.encode()).hexdigest()[:32] for name in sessions]
    assert named == [digests[0]] * 2 + [digests[1]] * 2
    assert not set(named) & set(sessions)


async def test_the_worker_and_the_request_of_a_turn_are_stored_shown_logged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gateway = scripted_gateway(Routed())
    async with client(gateway) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
        with caplog.at_level(logging.INFO, "tito.serve"):
            answer = await chat(http, name, [*HELLO, SAID, user()])
        page = (await http.get(f"/sessions/{name}/view")).text
        lines = (await http.get("/metrics")).text.splitlines()
    assert "worker 7 · request request-0" in page
    assert "worker 8 · request request-1" in page
    assert "engine's request: request-1, worker: 8" in caplog.text
    assert 'tito_worker_cached_ids_total{worker="8"} ' in "\n".join(lines)
    expected = next(x for x in lines if x.startswith('tito_worker_expected_ids_total{worker="8"}'))
    assert float(expected.split()[-1]) > 0
    async with gateway.sessions.using(name) as session:
        last = session.newest
        assert last is not None
        reply = stored_reply(last)
        assert (reply.request_id, reply.worker) == ("request-1", "8")
        earlier = session.commits[last.parent or ""]
        assert decode(encode(last, earlier), {earlier.name: earlier}).origin == last.origin
    assert answer["choices"][0]["message"]["content"] == "ok"


async def test_a_row_without_these_fields_is_read() -> None:
    """Such as one that an earlier version stored."""
    gateway = scripted_gateway(Routed())
    async with client(gateway) as http:
        name = await opened(http)
        await chat(http, name, HELLO)
    async with gateway.sessions.using(name) as session:
        commit = session.newest
        assert commit is not None
        row = encode(commit, None)
    old = row.replace(b'"engine_request":"request-0","worker":"7",', b"")
    assert old != row
    assert decode(old, {}).origin.worker is None


def test_only_so_many_workers_have_series_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_WORKERS", 2)
    counted = Metrics()
    assert [counted._worker_label(name) for name in "abcab"] == ["a", "b", "other", "a", "b"]
