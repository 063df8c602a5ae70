"""A vLLM of a test's own: it wants a key, keeps its generate route shut, and is killed in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.engines.conftest import asked_for
from tests.engines.server import Server
from tests.engines.talk import HELLO, PLAIN
from tests.engines.vllm import vllm
from tests.io.engines.scripted import Heard
from tito_io.engines.protocol import AuthenticationError, Delta, Sampling, UnreachableError
from tito_io.engines.vllm import VLLM, Notice

pytestmark = pytest.mark.engine

FLAGS = ("--api-key=sesame", "--no-enable-scale-out", "--logprobs-mode=processed_logprobs")
LONG = Sampling(max_tokens=8000, extra={"ignore_eos": True})


def test_a_server_that_locks_out_and_dies(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Asked on one event loop after the other."""
    asked_for("vllm-more")
    with vllm(say, tmp_path / "vllm.log", *FLAGS) as server:
        anyio.run(locked_out, server, backend="trio")
        anyio.run(shut, server)
        anyio.run(bereft, server, backend="trio")


async def locked_out(server: Server) -> None:
    """Be refused without the key."""
    for key in (None, "wrong"):
        async with VLLM(server.base_url, model=server.model, api_key=key) as engine:
            for watch in (None, Heard()):
                with pytest.raises(AuthenticationError, match="api_key"):
                    await engine.from_messages(HELLO, PLAIN, Sampling(max_tokens=1), watch=watch)
    async with VLLM(server.base_url, api_key="sesame") as engine:
        assert len((await engine.from_messages(HELLO, PLAIN, Sampling(max_tokens=1))).completion_ids) == 1


async def shut(server: Server) -> None:
    """Trap 5: find the generate route shut, and say so. Trap 21: find out what is reported."""
    async with VLLM(server.base_url, route="generate", api_key="sesame") as engine:
        assert await engine.logprobs_mode() == "processed"
        for watch in (None, Heard()):
            reply = await engine.from_ids([100], Sampling(max_tokens=2), watch=watch)
            assert (reply.notices, len(reply.completion_ids)) == ((Notice.FELL_BACK,), 2)
        assert engine.notices == {Notice.FELL_BACK: 2}


async def bereft(server: Server) -> None:
    """Lose the server in the middle of a stream, and of a turn in one piece."""
    heard = Heard()

    async def killing(delta: Delta) -> None:
        await heard(delta)
        if len(heard.ids) >= 20:
            server.kill()

    async with VLLM(server.base_url, api_key="sesame") as engine:
        await engine.from_ids([100], Sampling(max_tokens=1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_broken_off, engine)
            with pytest.raises(UnreachableError) as caught:
                await engine.from_ids([100], LONG, watch=killing)
        with pytest.raises(UnreachableError, match="nothing answers"):
            await engine.version()
    partial = caught.value.partial
    assert partial is not None
    assert (partial.completion_ids, partial.logprobs) == (heard.ids, heard.logprobs)
    assert len(partial.completion_ids) >= 20
    assert (partial.finish_reason, partial.prompt_ids) == ("abort", (100,))


async def _broken_off(engine: VLLM) -> None:
    with pytest.raises(UnreachableError, match="the connection broke before the answer was whole"):
        await engine.from_ids([100], LONG)
