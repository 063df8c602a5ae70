"""What an `AsyncLLM` does otherwise than one may expect."""

from __future__ import annotations

import anyio
import pytest

from tito_io.engines.in_process import VllmAsync
from tito_io.engines.protocol import AbortedError, Delta, Sampling

pytestmark = pytest.mark.anyio

PROMPT = list(range(100, 400))
LONG = Sampling(max_tokens=7000, temperature=1.0, extra={"ignore_eos": True})


async def test_a_pause_that_aborts_keeps_what_was_sampled(engine: VllmAsync) -> None:
    """As weight updates do: the turn comes back in `partial`, and sampling goes on afterwards."""
    begun = anyio.Event()

    async def watch(_: Delta) -> None:
        begun.set()

    async def paused() -> None:
        await begun.wait()
        await engine.engine.pause_generation(mode="abort")
        await engine.engine.resume_generation()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(paused)
        with pytest.raises(AbortedError) as caught:
            await engine.from_ids(PROMPT, LONG, watch=watch)
    partial = caught.value.partial
    assert partial is not None
    assert partial.logprobs is not None
    assert len(partial.logprobs) == len(partial.completion_ids) > 0
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=2))).completion_ids
