"""TensorRT-LLM: what is sent, what comes back, and how it fails."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

from tests.io.engines.scripted import CALL, END, MODEL, PROMPT, YES, Heard, Script, spelled
from tests.io.engines.tensorrt_llm.tensorrt_llm_server import Server, served
from tito_core import InputError, Message, Trajectory
from tito_io.client import Route, TokenClient
from tito_io.engines.aborted_turns import AbortedTurns, OnAbort
from tito_io.engines.constraint import Constraint
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    EmptyReplyError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.engines.tensorrt_llm import TensorRTLLM

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True])
TOOLS = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},)
NO = Script(ids=(*spelled("No"), END))


async def test_what_is_sent() -> None:
    engine, server = served()
    await engine.from_ids(PROMPT, Sampling(max_tokens=9, temperature=0.5, seed=3, extra={"top_k": 7}))
    assert server.asked == [
        {
            "model": "m",
            "prompt": list(PROMPT),
            "detokenize": False,
            "include_stop_str_in_output": True,
            "max_tokens": 9,
            "seed": 3,
            "temperature": 0.5,
            "top_k": 7,
            "logprobs": 1,
            "stop_token_ids": sorted(MODEL.stop_ids),
        }
    ]


@STREAMED
async def test_ids_and_log_probabilities_are_those_that_were_sampled(*, streamed: bool) -> None:
    engine, _ = served()
    heard = Heard()
    reply = await engine.from_ids(PROMPT, Sampling(), watch=heard if streamed else None)
    assert (reply.completion_ids, reply.logprobs) == (YES.ids, YES.logprobs)
    assert list(reply.prompt_ids) == list(PROMPT)
    assert (reply.finish_reason, reply.stop_reason, reply.text) == ("stop", END, "Yes.")
    assert reply.message == {"role": "assistant", "content": "Yes."}
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(PROMPT), len(YES.ids))
    assert reply.usage.cached_tokens == 3
    if streamed:
        assert (heard.ids, heard.logprobs, heard.text) == (YES.ids, YES.logprobs, "Yes.")


@STREAMED
async def test_a_cut_turn_has_no_stop_token(*, streamed: bool) -> None:
    engine, _ = served()
    heard = Heard()
    reply = await engine.from_ids(PROMPT, Sampling(max_tokens=2), watch=heard if streamed else None)
    assert (reply.completion_ids, reply.finish_reason, reply.truncated) == (YES.ids[:2], "length", True)
    assert (reply.stop_reason, reply.text, len(reply.logprobs or ())) == (None, "Ye", 2)
    assert heard.text == ("Ye" if streamed else "")


async def test_a_stop_id_of_the_callers_stays_in_the_ids() -> None:
    (index,) = spelled("s")
    engine, server = served(Server(scripts=[Script(ids=tuple(spelled("Yes")))]))
    reply = await engine.from_ids(PROMPT, Sampling(stop_ids=(index,)))
    assert server.asked[0]["stop_token_ids"] == sorted((index, *MODEL.stop_ids))
    assert (reply.completion_ids[-1], reply.stop_reason, reply.text) == (index, index, "Ye")


async def test_with_ignore_eos_the_models_own_ends_are_not_named() -> None:
    """A named id ends a turn even so."""
    engine, server = served()
    await engine.from_ids(PROMPT, Sampling(extra={"ignore_eos": True}))
    assert "stop_token_ids" not in server.asked[0]


async def test_several_turns_after_one_prompt() -> None:
    engine, _ = served(Server(scripts=[YES, NO]))
    reply = await engine.from_ids(PROMPT, Sampling(n=2))
    (other,) = reply.siblings
    assert (reply.completion_ids, other.completion_ids) == (YES.ids, NO.ids)
    assert (other.logprobs, other.text) == (NO.logprobs, "No")
    assert reply.usage.completion_tokens == len(YES.ids) + len(NO.ids)


@STREAMED
async def test_calls_are_read_from_the_ids(*, streamed: bool) -> None:
    engine, _ = served(Server(scripts=[CALL]))
    watch = Heard() if streamed else None
    reply = await engine.from_ids(PROMPT, Sampling(), Rendering(tools=TOOLS), watch=watch)
    assert reply.message is not None
    (call,) = reply.message["tool_calls"]
    assert (call["function"]["name"], reply.finish_reason) == ("look", "tool_calls")
    assert reply.completion_ids == CALL.ids


async def test_turns_of_a_conversation_keep_their_ids() -> None:
    engine, server = served(Server(context=4000))
    client, steps = TokenClient(engine), Trajectory()
    messages: list[Message] = []
    for question in ("One?", "Two?", "Three?"):
        messages.append({"role": "user", "content": question})
        done = await client.turn(steps, messages, sampling={"max_tokens": 20})
        steps = steps.append(done.step)
        messages.append(done.message)
    assert client.counts.routes == {Route.MITO: 1, Route.TITO: 2}
    first, second, _ = (body["prompt"] for body in server.asked)
    assert second[: len(first) + len(YES.ids)] == [*first, *YES.ids]


async def test_without_a_limit_all_that_fits_is_sampled() -> None:
    engine, server = served()
    limits = await engine.limits()
    assert (limits.max_model_len, limits.vocab_size) == (None, MODEL.vocab_size)
    await engine.from_ids(PROMPT, Sampling())
    assert "max_tokens" not in server.asked[0]


async def test_a_prompt_that_does_not_fit() -> None:
    engine, _ = served(Server(context=10))
    with pytest.raises(OverlongError, match=r"max_seq_len \(10\)"):
        await engine.from_ids(PROMPT[:1] * 10, Sampling())


async def test_an_id_of_another_model_is_not_sent() -> None:
    engine, server = served()
    with pytest.raises(InputError, match="not in the vocabulary"):
        await engine.from_ids([1, MODEL.vocab_size], Sampling())
    assert not server.asked


async def test_a_server_that_returns_no_ids_is_refused() -> None:
    for watch in (None, Heard()):
        engine, _ = served(Server(returns_ids=False))
        with pytest.raises(InvalidReplyError, match=r"no `token_ids`.*use a newer one"):
            await engine.from_ids(PROMPT, Sampling(), watch=watch)


@pytest.mark.parametrize("finish", ["cancelled", "timeout"])
@STREAMED
async def test_an_aborted_turn_keeps_what_was_sampled(finish: str, *, streamed: bool) -> None:
    engine, _ = served(Server(scripts=[Script(ids=YES.ids[:2], finish=finish)]))
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, Sampling(), watch=Heard() if streamed else None)
    partial = caught.value.partial
    assert partial is not None
    assert (partial.completion_ids, partial.logprobs) == (YES.ids[:2], YES.logprobs[:2])
    assert (partial.finish_reason, partial.text) == ("abort", "Ye")


async def test_a_turn_that_ended_beside_an_aborted_one_is_not_resumed() -> None:
    """Resumed past its stop token, it would have ids after it."""
    engine, server = served(Server(scripts=[YES, Script(ids=NO.ids[:1], finish="cancelled")]))
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, Sampling(n=2))
    assert caught.value.partial is not None
    assert [one.finish_reason for one in (caught.value.partial, *caught.value.partial.siblings)] == [
        "stop",
        "abort",
    ]
    resumed = await AbortedTurns(engine, OnAbort.RESUME).from_ids(PROMPT, Sampling(n=2))
    assert resumed.completion_ids == YES.ids
    assert resumed.message == {"role": "assistant", "content": "Yes."}
    assert [len(body["prompt"]) - len(PROMPT) for body in server.asked] == [0, 0, 1]


async def test_an_abort_that_names_a_stop_and_has_no_ids_is_refused() -> None:
    script = Script(ids=(), finish="cancelled")
    engine, _ = served(Server(scripts=[script], changed={"stop_reason": 7}))
    with pytest.raises(InvalidReplyError, match="another stop than the last id"):
        await engine.from_ids(PROMPT, Sampling())


async def test_an_error_in_a_stream_keeps_what_was_sampled() -> None:
    engine, _ = served(Server(fails=True))
    with pytest.raises(ServerError) as caught:
        await engine.from_ids(PROMPT, Sampling(), watch=Heard())
    partial = caught.value.partial
    assert partial is not None
    assert (partial.completion_ids, partial.text) == (YES.ids[:1], "Y")


async def test_a_cancelled_turn_closes_its_connection() -> None:
    """The server looks once a second whether it is closed (openai_server.py, await_disconnected)."""
    engine, server = served(Server(hangs=True))
    with anyio.CancelScope() as scope:

        async def cancel(_: Delta) -> None:
            scope.cancel()

        await engine.from_ids(PROMPT, Sampling(), watch=cancel)
    assert scope.cancelled_caught
    assert [one.closed for one in server.bodies] == [True]


async def test_log_probabilities_may_be_left_out() -> None:
    engine, server = served(logprobs=False)
    for watch in (None, Heard()):
        reply = await engine.from_ids(PROMPT, Sampling(), watch=watch)
        assert (reply.completion_ids, reply.logprobs) == (YES.ids, None)
    assert all("logprobs" not in body for body in server.asked)


@pytest.mark.parametrize(
    ("changed", "counted", "problem"),
    [
        ({}, {"completion_tokens": 4}, "4 counted sampled ids for 5"),
        ({}, {"prompt_tokens": 1}, "1 counted prompt ids"),
        ({"logprobs": None}, {}, "`logprobs` is null"),
        ({"logprobs": {"token_logprobs": [-0.5]}}, {}, "1 log-probabilities for 5"),
        ({"logprobs": {"token_logprobs": [0.5] * 5}}, {}, "above 0"),
        ({"stop_reason": 7}, {}, "another stop than the last id"),
        ({"token_ids": list(YES.ids[:-1])}, {"completion_tokens": 4}, "its last id ends no turn"),
        ({"token_ids": [*YES.ids[:-1], MODEL.vocab_size]}, {}, "outside the vocabulary"),
        ({"finish_reason": "odd"}, {}, "unknown reason"),
    ],
)
async def test_an_answer_that_does_not_hold_together(
    changed: dict[str, Any], counted: dict[str, Any], problem: str
) -> None:
    engine, _ = served(Server(changed=changed, counted=counted))
    with pytest.raises(InvalidReplyError, match=problem):
        await engine.from_ids(PROMPT, Sampling())


async def test_a_value_that_the_server_does_not_have_is_none() -> None:
    values = [-0.5, -9999.0, -0.5, -0.5, -0.5]
    engine, _ = served(Server(changed={"logprobs": {"token_logprobs": values}}))
    assert (await engine.from_ids(PROMPT, Sampling())).logprobs == (-0.5, None, -0.5, -0.5, -0.5)


async def test_a_turn_of_no_ids() -> None:
    engine, _ = served(Server(scripts=[Script(ids=(), finish="length")]))
    with pytest.raises(EmptyReplyError):
        await engine.from_ids(PROMPT, Sampling())


@pytest.mark.parametrize(
    ("sampling", "streamed", "named"),
    [
        (Sampling(n=2), True, r"Sampling\.n.*ask without `watch`"),
        (Sampling(stop=("\n\n",)), False, r"Sampling\.stop.*stop_ids"),
        (Sampling(extra={"best_guess": 1}), False, "'best_guess'.*refuses keys"),
        (Sampling(constraint=Constraint(schema={"type": "object"})), False, "response_format.*TensorRT-LLM"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    sampling: Sampling, streamed: bool, named: str
) -> None:
    engine, server = served()
    with pytest.raises(UnsupportedError, match=named):
        await engine.from_ids(PROMPT, sampling, watch=Heard() if streamed else None)
    assert not server.asked


async def test_keys_of_the_adapter_are_refused() -> None:
    engine, server = served()
    for name in ("detokenize", "truncate_prompt_tokens", "use_beam_search"):
        with pytest.raises(InputError, match=f"{name!r} cannot be passed"):
            await engine.from_ids(PROMPT, Sampling(extra={name: True}))
    assert not server.asked


async def test_an_image_is_refused_by_name() -> None:
    engine, _ = served()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(MediaUnsupportedError, match=r"TensorRT-LLM takes no media"):
        await engine.from_messages([{"role": "user", "content": [image]}], Rendering(), Sampling())


def test_it_is_found_by_its_name() -> None:
    address = EngineOptions(base_url="http://127.0.0.1:1", family=MODEL)
    assert isinstance(make_engine("tensorrt-llm", address), TensorRTLLM)
    with pytest.raises(InputError, match="--engine tensorrt-llm needs --family"):
        make_engine("tensorrt-llm", attrs.evolve(address, family=None))
