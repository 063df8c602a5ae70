"""An `AsyncLLM`: it answers in one event loop alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from threading import Thread

import anyio
import pytest

from tests.io.engines.in_process.fakes import MODEL, YES, AsyncLLM, Sampled, fake_vllm, spelled
from tito_io.engines.in_process import VllmAsync
from tito_io.engines.protocol import Delta, RequestError, Sampling, ServerError, UnsupportedError

PROMPT = [5, 6, 7, 8]
ENDLESS = Sampled(ids=spelled("abc"), finish_reason=None)
"""It goes on until it is given up."""
LONGER = Sampled(ids=spelled("abcdefgh" * 40), finish_reason="length")
SHORT = Sampling(max_tokens=9)
ENGINES: list[VllmAsync] = []


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the event loops that engines made for trio."""
    fake_vllm(monkeypatch)
    ENGINES.clear()
    yield
    for engine in ENGINES:
        if engine._own is not None:
            engine._own.close()


def made(*turns: Sampled) -> VllmAsync:
    """Return an engine whose object samples these turns."""
    ENGINES.append(VllmAsync(AsyncLLM(turns=turns or (YES,)), MODEL))
    return ENGINES[-1]


@pytest.mark.anyio
async def test_turns_are_sampled_together_and_streamed() -> None:
    engine = made(YES, LONGER)
    deltas: list[Delta] = []

    async def watch(delta: Delta) -> None:
        deltas.append(delta)

    replies = []

    async def turn() -> None:
        replies.append(await engine.from_ids(PROMPT, SHORT))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(turn)
        reply = await engine.from_ids(PROMPT, Sampling(max_tokens=390, n=2), watch=watch)
    assert [one.text for one in replies] == ["Yes."] * 3
    assert reply.siblings[0].completion_ids == tuple(LONGER.ids)
    assert sum(len(delta.ids) for delta in deltas) == len(YES.ids) + len(LONGER.ids)
    assert "".join(delta.text for delta in deltas if delta.index == 0) == "Yes."


@pytest.mark.anyio
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_turn_is_aborted(streamed: bool) -> None:
    engine = made(ENDLESS)
    with anyio.CancelScope() as scope:

        async def watch(_: Delta) -> None:
            scope.cancel()

        if not streamed:
            scope.cancel()
        await engine.from_ids(PROMPT, Sampling(), watch=watch if streamed else None)
    assert scope.cancelled_caught
    assert engine.engine.running == 0
    engine.engine.turns = (YES,)
    assert (await engine.from_ids(PROMPT, SHORT)).text == "Yes."


def test_an_object_whose_event_loop_has_ended_says_so() -> None:
    """The real one would wait for ever."""
    engine = VllmAsync(AsyncLLM(), MODEL)
    assert asyncio.run(engine.from_ids(PROMPT, SHORT)).text == "Yes."
    with pytest.raises(UnsupportedError, match="an event loop that has ended"):
        asyncio.run(engine.from_ids(PROMPT, SHORT))


def test_trio_gets_a_loop_that_lasts() -> None:
    engine = made()
    turn = partial(engine.from_ids, PROMPT, SHORT)
    replies = [anyio.run(turn, backend=backend) for backend in ("trio", "trio", "asyncio")]
    assert [reply.text for reply in replies] == ["Yes."] * 3
    assert engine._own is not None
    assert not engine._own.is_running()


def test_another_threads_loop_answers() -> None:
    """As where a trainer runs its object in a thread of its own."""
    engine = VllmAsync(AsyncLLM(), MODEL)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        future = asyncio.run_coroutine_threadsafe(engine.from_ids(PROMPT, SHORT), loop)
        assert future.result(30).text == "Yes."
        turn = partial(engine.from_ids, PROMPT, SHORT)
        for backend in ("asyncio", "trio"):
            assert anyio.run(turn, backend=backend).text == "Yes."
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.anyio
async def test_errors_keep_their_words_in_the_cause() -> None:
    engine = made()
    engine.engine.failing = ValueError("The decoder prompt 'secret' is wrong")
    with pytest.raises(RequestError, match=r"AsyncLLM\.generate raised ValueError") as caught:
        await engine.from_ids(PROMPT, SHORT)
    assert "secret" not in str(caught.value)
    engine.engine.failing = RuntimeError("EngineCore died")
    with pytest.raises(ServerError):
        await engine.from_ids(PROMPT, SHORT)
