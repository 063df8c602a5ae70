"""TensorRT-LLM: what is sent, what comes back, and how it fails."""

from __future__ import annotations

import pytest

from tests.io.engines.scripted import END, MODEL, PROMPT, YES, Heard, Script, spelled
from tests.io.engines.tensorrt_llm.tensorrt_llm_server import Server, served
from tito_core import InputError
from tito_io.engines.aborted_turns import AbortedTurns, OnAbort
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import (
    AbortedError,
    EmptyReplyError,
    InvalidReplyError,
    Sampling,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio
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


async def test_without_a_limit_all_that_fits_is_sampled() -> None:
    engine, server = served()
    limits = await engine.limits()
    assert (limits.max_model_len, limits.vocab_size) == (None, MODEL.vocab_size)
    await engine.from_ids(PROMPT, Sampling())
    assert "max_tokens" not in server.asked[0]


async def test_a_server_that_returns_no_ids_is_refused() -> None:
    for watch in (None, Heard()):
        engine, _ = served(Server(returns_ids=False))
        with pytest.raises(InvalidReplyError, match=r"no `token_ids`.*use a newer one"):
            await engine.from_ids(PROMPT, Sampling(), watch=watch)


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


async def test_log_probabilities_may_be_left_out() -> None:
    engine, server = served(logprobs=False)
    for watch in (None, Heard()):
        reply = await engine.from_ids(PROMPT, Sampling(), watch=watch)
        assert (reply.completion_ids, reply.logprobs) == (YES.ids, None)
    assert all("logprobs" not in body for body in server.asked)


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
