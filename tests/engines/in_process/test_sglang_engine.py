"""What a `sglang.Engine` does otherwise than one may expect."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from tito_io.engines.in_process import SglangEngine
from tito_io.engines.protocol import AbortedError, Delta, Sampling

pytestmark = pytest.mark.anyio

PROMPT = list(range(100, 400))
GREEDY = Sampling(max_tokens=6, temperature=0.0)
LONG = Sampling(max_tokens=7000, temperature=1.0, extra={"ignore_eos": True})


def generated(engine: SglangEngine) -> tuple[int, ...]:
    """Return a turn of the object's own blocking method."""
    answer = engine.engine.generate(
        input_ids=PROMPT, sampling_params={"max_new_tokens": 6, "temperature": 0.0}
    )
    return tuple(answer["output_ids"])


def test_blocking_methods_and_event_loops_take_turns(engine: SglangEngine) -> None:
    """The object's tasks live in one event loop; awaited in another one, it never answers."""
    turn = partial(engine.from_ids, PROMPT, GREEDY)
    replies = [generated(engine)]
    for backend in ("asyncio", "asyncio", "trio"):
        replies += [anyio.run(turn, backend=backend).completion_ids, generated(engine)]
    assert len(set(replies)) == 1


@pytest.mark.parametrize("incremental", [False, True])
async def test_an_aborted_turn_keeps_each_id_once(
    engine: SglangEngine, incremental: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk that says so repeats the last id where chunks hold new ids only."""
    manager: Any = engine.engine.tokenizer_manager
    ids: list[int] = []

    async def watch(delta: Delta) -> None:
        ids.extend(delta.ids)
        if len(ids) == 5:
            manager.abort_request(abort_all=True)

    monkeypatch.setattr(manager, "incremental_streaming_output", incremental)
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, LONG, watch=watch)
    kept = caught.value.partial
    assert kept is not None
    assert list(kept.completion_ids) == ids
    assert len(kept.logprobs or ()) == len(ids) >= 5
