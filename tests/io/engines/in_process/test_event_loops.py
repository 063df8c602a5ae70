"""Objects that answer in one event loop alone: an `AsyncLLM` and a `sglang.Engine`."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import Thread

import anyio
import pytest

from tests.io.engines.scripted import PROMPT
from tito_io.engines.protocol import Sampling, UnsupportedError

from .fakes import made

SHORT = Sampling(max_tokens=9)


def test_an_object_whose_event_loop_has_ended_says_so() -> None:
    """The real one would wait for ever."""
    engine, _ = made("vllm-async")
    assert asyncio.run(engine.from_ids(PROMPT, SHORT)).text == "Yes."
    with pytest.raises(UnsupportedError, match="an event loop that has ended"):
        asyncio.run(engine.from_ids(PROMPT, SHORT))


def test_trio_gets_a_loop_that_lasts() -> None:
    engine, fake = made("vllm-async")
    turn = partial(engine.from_ids, PROMPT, SHORT)
    replies = [anyio.run(turn, backend=backend) for backend in ("trio", "trio", "asyncio")]
    assert [reply.text for reply in replies] == ["Yes."] * 3
    assert not fake.output_handler.get_loop().is_running()


def test_another_threads_loop_answers() -> None:
    """As where a trainer runs its object in a thread of its own."""
    engine, _ = made("vllm-async")
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


def test_the_owner_runs_the_loop_between_turns() -> None:
    """Blocking methods run it themselves (engine.py:542): no thread may be in it after a turn."""
    engine, fake = made("sglang-engine")
    turn = partial(engine.from_ids, PROMPT, SHORT)
    for backend in ("asyncio", "trio") * 20:
        assert anyio.run(turn, backend=backend).text == "Yes."
        fake.loop.run_until_complete(asyncio.sleep(0))


def test_turns_go_on_where_the_owner_runs_the_loop() -> None:
    """The object's loop is the caller's own where it was made in it."""
    engine, fake = made("sglang-engine")
    assert fake.loop.run_until_complete(engine.from_ids(PROMPT, SHORT)).text == "Yes."
