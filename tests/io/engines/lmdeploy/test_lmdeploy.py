"""LMDeploy: what is sent, what comes back, and how it fails."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest

from tests.io.engines.lmdeploy.lmdeploy_server import Server, served
from tests.io.engines.scripted import CALL, END, MODEL, PROMPT, YES, Heard, Script, spelled
from tito_core import InputError, Message, Trajectory
from tito_io.client import Route, TokenClient
from tito_io.engines.constraint import Constraint
from tito_io.engines.lmdeploy import LMDeploy
from tito_io.engines.lmdeploy.requests import NEUTRAL, ROOM
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import (
    AbortedError,
    AuthenticationError,
    Delta,
    EmptyReplyError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    RequestError,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.engines.registry import EngineOptions, make_engine

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True])
TOOLS = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},)


async def test_what_is_sent() -> None:
    engine, server = served()
    await engine.from_ids(PROMPT, Sampling(max_tokens=9, temperature=0.5, extra={"top_k": 7}))
    assert server.asked == [
        {
            "input_ids": list(PROMPT),
            "max_tokens": 9,
            "return_logprob": True,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            **NEUTRAL,
            "temperature": 0.5,
            "top_k": 7,
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


async def test_a_stop_id_of_the_callers_goes_along_with_the_models_own() -> None:
    """Named alone, it would replace those of the chat template."""
    (index,) = spelled("s")
    engine, server = served(Server(script=Script(ids=tuple(spelled("Yes")))))
    reply = await engine.from_ids(PROMPT, Sampling(stop_ids=(index,)))
    assert server.asked[0]["stop_token_ids"] == sorted((index, *MODEL.stop_ids))
    assert (reply.completion_ids[-1], reply.stop_reason, reply.text) == (index, index, "Ye")


async def test_a_stop_token_that_the_server_left_out_is_noticed() -> None:
    """Ids, log-probabilities and counts agree without it."""
    unstopped = Script(ids=tuple(spelled("Yes")), finish="length")
    engine, _ = served(Server(script=unstopped, dropped={"finish_reason": {"type": "stop"}}))
    with pytest.raises(InvalidReplyError, match="last id ends no turn: the server left the token out"):
        await engine.from_ids(PROMPT, Sampling())


@STREAMED
async def test_calls_are_read_from_the_ids(*, streamed: bool) -> None:
    engine, _ = served(Server(script=CALL))
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
    first, second, _ = (body["input_ids"] for body in server.asked)
    assert second[: len(first) + len(YES.ids)] == [*first, *YES.ids]


async def test_without_a_limit_all_that_fits_is_asked_for() -> None:
    """No route states the context length, and the server's own default is 128 ids."""
    engine, server = served()
    limits = await engine.limits()
    assert (limits.max_model_len, limits.vocab_size) == (None, MODEL.vocab_size)
    await engine.from_ids(PROMPT, Sampling())
    assert server.asked[0]["max_tokens"] == ROOM


async def test_a_prompt_that_does_not_fit() -> None:
    engine, _ = served(Server(context=10))
    with pytest.raises(OverlongError, match=r"model context length \(10\)"):
        await engine.from_ids(PROMPT[:1] * 10, Sampling())


async def test_an_id_of_another_model_is_not_sent() -> None:
    engine, server = served()
    with pytest.raises(InputError, match="not in the vocabulary"):
        await engine.from_ids([1, MODEL.vocab_size], Sampling())
    assert not server.asked


@STREAMED
async def test_an_aborted_turn_keeps_what_was_sampled(*, streamed: bool) -> None:
    engine, _ = served(Server(script=Script(ids=YES.ids[:2], finish="abort")))
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, Sampling(), watch=Heard() if streamed else None)
    partial = caught.value.partial
    assert partial is not None
    assert (partial.completion_ids, partial.logprobs) == (YES.ids[:2], YES.logprobs[:2])
    assert (partial.finish_reason, partial.text) == ("abort", "Ye")


async def test_a_turn_aborted_before_its_first_id() -> None:
    engine, _ = served(Server(script=Script(ids=(), finish="abort")))
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, Sampling())
    assert caught.value.partial is None


async def test_an_error_in_a_stream_keeps_what_was_sampled() -> None:
    error = {"message": "An internal server error occurred.", "type": "server_error", "code": 500}
    engine, _ = served(Server(fails={**error, "object": "error", "param": None}))
    with pytest.raises(ServerError) as caught:
        await engine.from_ids(PROMPT, Sampling(), watch=Heard())
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == YES.ids[:1]


async def test_a_cancelled_turn_closes_its_connection() -> None:
    """LMDeploy aborts the turn then (utils/request_cleanup.py)."""
    engine, server = served(Server(hangs=True))
    with anyio.CancelScope() as scope:

        async def cancel(_: Delta) -> None:
            scope.cancel()

        await engine.from_ids(PROMPT, Sampling(), watch=cancel)
    assert scope.cancelled_caught
    assert [one.closed for one in server.bodies] == [True]


async def test_an_engine_without_log_probabilities() -> None:
    engine, server = served(Server(logprobs_mode=None))
    with pytest.raises(RequestError, match=r"--logprobs-mode raw_logprobs.*logprobs=False"):
        await engine.from_ids(PROMPT, Sampling())
    without, _ = served(server, logprobs=False)
    for watch in (None, Heard()):
        reply = await without.from_ids(PROMPT, Sampling(), watch=watch)
        assert (reply.completion_ids, reply.logprobs) == (YES.ids, None)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"completion_tokens": 4}, "4 counted sampled ids for 5"),
        ({"prompt_tokens": 1}, "1 counted prompt ids"),
        ({"output_token_logprobs": [[-0.5, 7]] * 5}, "belong to other ids"),
        ({"output_token_logprobs": [[-0.5, YES.ids[0]]]}, "1 log-probabilities for 5"),
        ({"output_token_logprobs": [[0.5, index] for index in YES.ids]}, "above 0"),
        ({"output_token_logprobs": None}, "`output_token_logprobs` is null"),
        ({"finish_reason": {"type": "odd"}}, "unknown reason"),
    ],
)
async def test_an_answer_that_does_not_hold_together(changed: dict[str, Any], problem: str) -> None:
    engine, _ = served(Server(dropped=changed))
    with pytest.raises(InvalidReplyError, match=problem):
        await engine.from_ids(PROMPT, Sampling())


async def test_a_turn_of_no_ids() -> None:
    engine, _ = served(Server(script=Script(ids=(), finish="length")))
    with pytest.raises(EmptyReplyError):
        await engine.from_ids(PROMPT, Sampling())


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        (Sampling(n=2), r"Sampling\.n"),
        (Sampling(seed=1), r"Sampling\.seed"),
        (Sampling(stop=("\n\n",)), r"Sampling\.stop.*stop_ids"),
        (Sampling(extra={"presence_penalty": 1}), "'presence_penalty'.*ignores such keys silently"),
        (Sampling(constraint=Constraint(schema={"type": "object"})), "response_format.*LMDeploy"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(sampling: Sampling, named: str) -> None:
    engine, server = served()
    with pytest.raises(UnsupportedError, match=named):
        await engine.from_ids(PROMPT, sampling)
    assert not server.asked


async def test_keys_of_the_adapter_are_refused() -> None:
    engine, server = served()
    with pytest.raises(InputError, match="'include_stop_str_in_output' cannot be passed"):
        await engine.from_ids(PROMPT, Sampling(extra={"include_stop_str_in_output": False}))
    with pytest.raises(InputError, match="ignore_eos ignores these"):
        await engine.from_ids(PROMPT, Sampling(stop_ids=(5,), extra={"ignore_eos": True}))
    assert not server.asked


async def test_an_image_is_refused_by_name() -> None:
    engine, _ = served()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(MediaUnsupportedError, match=r"LMDeploy takes no media"):
        await engine.from_messages([{"role": "user", "content": [image]}], Rendering(), Sampling())


async def test_an_adapter_of_weights_cannot_be_chosen() -> None:
    server = Server(models=("base", "tuned"))
    assert (await served(server)[0].served()).name == "base"
    assert (await served(server, model="base")[0].served()).name == "base"
    with pytest.raises(InputError, match="samples with base alone, and 'tuned' is an adapter"):
        await served(server, model="tuned")[0].served()
    with pytest.raises(InputError, match="the server has base, tuned; pass one of them, not 'other'"):
        await served(server, model="other")[0].served()


async def test_a_wrong_key_and_a_sleeping_engine() -> None:
    with pytest.raises(AuthenticationError):
        await served(Server(key="k"))[0].limits()
    assert (await served(Server(key="k"), api_key="k")[0].from_ids(PROMPT, Sampling())).completion_ids
    with pytest.raises(ServerError, match="503"):
        await served(Server(sleeping=True))[0].from_ids(PROMPT, Sampling())


def test_it_is_found_by_its_name() -> None:
    address = EngineOptions(base_url="http://127.0.0.1:1", family=MODEL)
    assert isinstance(make_engine("lmdeploy", address), LMDeploy)
    with pytest.raises(InputError, match="--engine lmdeploy needs --family"):
        make_engine("lmdeploy", attrs.evolve(address, family=None))
