"""LMDeploy: what is sent, what comes back, and how it fails."""

from __future__ import annotations

import pytest

from tests.io.engines.lmdeploy.lmdeploy_server import Server, served
from tests.io.engines.scripted import MODEL, PROMPT, YES, Heard, Script, spelled
from tito_core import InputError
from tito_io.engines.constraint import Constraint
from tito_io.engines.lmdeploy.engine import NEUTRAL, ROOM
from tito_io.engines.protocol import (
    AbortedError,
    AuthenticationError,
    EmptyReplyError,
    InvalidReplyError,
    RequestError,
    Sampling,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio


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


async def test_without_a_limit_all_that_fits_is_asked_for() -> None:
    """No route states the context length, and the server's own default is 128 ids."""
    engine, server = served()
    limits = await engine.limits()
    assert (limits.max_model_len, limits.vocab_size) == (None, MODEL.vocab_size)
    await engine.from_ids(PROMPT, Sampling())
    assert server.asked[0]["max_tokens"] == ROOM


async def test_a_turn_aborted_before_its_first_id() -> None:
    engine, _ = served(Server(script=Script(ids=(), finish="abort")))
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, Sampling())
    assert caught.value.partial is None


async def test_an_engine_without_log_probabilities() -> None:
    engine, server = served(Server(logprobs_mode=None))
    with pytest.raises(RequestError, match=r"--logprobs-mode raw_logprobs.*logprobs=False"):
        await engine.from_ids(PROMPT, Sampling())
    without, _ = served(server, logprobs=False)
    for watch in (None, Heard()):
        reply = await without.from_ids(PROMPT, Sampling(), watch=watch)
        assert (reply.completion_ids, reply.logprobs) == (YES.ids, None)


async def test_a_turn_of_no_ids() -> None:
    engine, _ = served(Server(script=Script(ids=(), finish="length")))
    with pytest.raises(EmptyReplyError):
        await engine.from_ids(PROMPT, Sampling())


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
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


async def test_an_adapter_of_weights_cannot_be_chosen() -> None:
    server = Server(models=("base", "tuned"))
    assert (await served(server)[0].served()).name == "base"
    assert (await served(server, model="base")[0].served()).name == "base"
    with pytest.raises(InputError, match="samples with base alone, and 'tuned' is an adapter"):
        await served(server, model="tuned")[0].served()
    with pytest.raises(InputError, match="the server has base, tuned; pass one of them, not 'other'"):
        await served(server, model="other")[0].served()


async def test_a_key_goes_along() -> None:
    with pytest.raises(AuthenticationError):
        await served(Server(key="k"))[0].limits()
    assert (await served(Server(key="k"), api_key="k")[0].from_ids(PROMPT, Sampling())).completion_ids
