"""A `sglang.Engine`: its own event loop, tuples, and chunks that repeat what came before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import attrs
import pytest

from tests.io.engines.in_process.fakes import (
    CONTEXT,
    END,
    MODEL,
    YES,
    Sampled,
    SglangObject,
    TokenizerManager,
    spelled,
)
from tito_io.engines.in_process import SglangEngine
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    InvalidReplyError,
    OverlongError,
    RequestError,
    Sampling,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio

PROMPT = [5, 6, 7, 8]
SHORT = Sampling(max_tokens=9)
STOPPED = attrs.evolve(YES, stop_reason=END)
ENDLESS = Sampled(ids=spelled("abc"), finish_reason=None)
"""It goes on until it is given up."""


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Return an event loop that runs only when somebody runs it."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def made(loop: asyncio.AbstractEventLoop, *turns: Sampled, **options: Any) -> SglangEngine:
    """Return an engine whose object samples these turns."""
    return SglangEngine(SglangObject(turns=turns or (STOPPED,), loop=loop, **options), MODEL)


@pytest.mark.parametrize("incremental", [False, True])
async def test_a_stream_adds_up_to_the_reply(loop: asyncio.AbstractEventLoop, incremental: bool) -> None:
    other = Sampled(ids=spelled("No, never."), finish_reason="length")
    manager = TokenizerManager(incremental_streaming_output=incremental)
    engine = made(loop, STOPPED, other, tokenizer_manager=manager)
    deltas: list[Delta] = []

    async def watch(delta: Delta) -> None:
        deltas.append(delta)

    sampling = Sampling(max_tokens=30, n=2)
    streamed = await engine.from_ids(PROMPT, sampling, watch=watch)
    whole = await engine.from_ids(PROMPT, sampling)
    for reply in (streamed, whole):
        assert (reply.completion_ids, reply.logprobs) == (tuple(YES.ids), tuple(YES.values))
        assert (reply.finish_reason, reply.stop_reason, reply.text) == ("stop", END, "Yes.")
        assert (reply.siblings[0].completion_ids, reply.siblings[0].text) == (tuple(other.ids), "No, never.")
        assert (reply.usage.completion_tokens, reply.usage.cached_tokens) == (15, 2)
    assert [len(delta.ids) for delta in deltas] == [1] * 15


async def test_every_parameter_is_stated(loop: asyncio.AbstractEventLoop) -> None:
    """SGLang's own default is 128 ids (sglang/srt/sampling/sampling_params.py:149)."""
    engine = made(loop, deterministic=True)
    extra = {"top_p": 0.5, "ignore_eos": True}
    await engine.from_ids(PROMPT, Sampling(temperature=0.3, seed=4, stop=("x",), stop_ids=(9,), extra=extra))
    await engine.from_ids(PROMPT, Sampling())
    first, second = engine.engine.calls
    assert first == {
        "max_new_tokens": CONTEXT - 4,
        "temperature": 0.3,
        "sampling_seed": 4,
        "stop": ["x"],
        "stop_token_ids": [9],
        "n": 1,
        "skip_special_tokens": False,
        **extra,
    }
    assert second == {"max_new_tokens": CONTEXT - 4, "n": 1, "skip_special_tokens": False}


async def test_a_seed_that_changes_nothing_is_refused(loop: asyncio.AbstractEventLoop) -> None:
    engine = made(loop)
    with pytest.raises(UnsupportedError, match="enable_deterministic_inference"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=9, seed=3))
    assert not engine.engine.calls


async def test_the_longest_prompt_is_shorter_than_the_context(loop: asyncio.AbstractEventLoop) -> None:
    engine = made(loop)
    with pytest.raises(OverlongError, match=f"takes {CONTEXT - 7}"):
        await engine.from_ids([1] * (CONTEXT - 6), Sampling(max_tokens=1))


async def test_a_prompt_that_was_cut_is_noticed(loop: asyncio.AbstractEventLoop) -> None:
    """With `allow_auto_truncate`, the object cuts it and logs a warning (tokenizer_manager.py:1339)."""
    with pytest.raises(InvalidReplyError, match="3 counted prompt ids for 4 prompt ids"):
        await made(loop, cut_prompt=1).from_ids(PROMPT, SHORT)


@pytest.mark.parametrize("incremental", [False, True])
async def test_an_aborted_turn_keeps_each_id_once(loop: asyncio.AbstractEventLoop, incremental: bool) -> None:
    manager = TokenizerManager(incremental_streaming_output=incremental)
    sampled = Sampled(ids=spelled("Ye"), finish_reason=None)
    engine = made(loop, sampled, tokenizer_manager=manager, repeats_last=True)

    async def watch(_: Delta) -> None:
        pass

    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, SHORT, watch=watch)
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == tuple(sampled.ids)
    assert caught.value.partial.logprobs == tuple(sampled.values)


async def test_a_refusal_in_an_abort_is_an_error(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = {"type": "abort", "status_code": 400, "message": "Input length (9) is secret", "err_type": "Bad"}
    chunk = {"output_ids": [1], "meta_info": {"finish_reason": reason, "completion_tokens": 1}}
    monkeypatch.setattr(SglangObject, "_chunks", lambda *_, **__: [chunk])
    with pytest.raises(RequestError) as caught:
        await made(loop).from_ids(PROMPT, SHORT)
    assert "secret" not in str(caught.value)


async def test_log_probabilities_of_other_ids_are_rejected(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [(-0.5, index + 1, None) for index in YES.ids]
    meta = {"finish_reason": {"type": "stop"}, "completion_tokens": 5, "output_token_logprobs": values}
    monkeypatch.setattr(
        SglangObject, "_chunks", lambda *_, **__: [{"output_ids": YES.ids, "meta_info": meta}]
    )
    with pytest.raises(InvalidReplyError, match="belong to other ids"):
        await made(loop).from_ids(PROMPT, SHORT)


async def test_a_cancelled_turn_is_aborted(loop: asyncio.AbstractEventLoop) -> None:
    engine = made(loop, ENDLESS)
    with anyio.CancelScope() as scope:

        async def watch(_: Delta) -> None:
            scope.cancel()

        await engine.from_ids(PROMPT, Sampling(), watch=watch)
    assert scope.cancelled_caught
    assert engine.engine.closed == 1
    assert not loop.is_running()


def test_the_owner_runs_the_loop_between_turns(loop: asyncio.AbstractEventLoop) -> None:
    """Blocking methods run it themselves (engine.py:542): no thread may be in it after a turn."""
    engine = made(loop)
    turn = partial(engine.from_ids, PROMPT, SHORT)
    for backend in ("asyncio", "trio") * 20:
        assert anyio.run(turn, backend=backend).text == "Yes."
        loop.run_until_complete(asyncio.sleep(0))


def test_turns_go_on_where_the_owner_runs_the_loop(loop: asyncio.AbstractEventLoop) -> None:
    """The object's loop is the caller's own where it was made in it."""

    async def turn() -> str:
        return (await made(loop).from_ids(PROMPT, SHORT)).text

    assert loop.run_until_complete(turn()) == "Yes."
