"""What is asked of llama.cpp, and what is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import attrs
import httpx2
import pytest

from tests.io.engines.llamacpp.recorded import END, EXCHANGES, PROMPT, Replayed, replayed
from tests.io.engines.recorded_vocabulary import family
from tito_core import InputError
from tito_io.engines.constraint import Constraint
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.llamacpp.engine import LlamaModel
from tito_io.engines.llamacpp.requests import NEUTRAL, SAMPLERS
from tito_io.engines.protocol import ModelLimits, Rendering, Sampling, UnsupportedError

pytestmark = pytest.mark.anyio


async def test_every_sampler_is_sent_and_neutral() -> None:
    _, server = await replayed("cmpl.ids_raw")
    body = server.requests[0]
    assert NEUTRAL.items() <= body.items()
    assert body == {
        **NEUTRAL,
        "model": "tiny-qwen3",
        "prompt": list(PROMPT),
        "cache_prompt": True,
        "n_predict": 8,
        "seed": 7,
        "return_tokens": True,
        "n_probs": 1,
        "post_sampling_probs": False,
        "samplers": list(SAMPLERS),
        "stream": False,
        "n_cache_reuse": 0,
    }


def test_the_servers_own_samplers_are_all_neutralized() -> None:
    """Each setting that the recorded server had by default, and whose neutral value is another."""
    defaults = EXCHANGES["err.big_int"]["response"]["generation_settings"]
    others = {name for name in NEUTRAL if defaults[name] != NEUTRAL[name]}
    assert others == {"temperature", "top_k", "top_p", "min_p"}


@pytest.mark.parametrize(
    ("extra", "sent"),
    [
        ({"top_k": 5}, {"top_k": 5}),
        ({"repetition_penalty": 1.5}, {"repeat_penalty": 1.5}),
        ({"top_logprobs": 3}, {"n_probs": 3}),
        ({"top_logprobs": 0}, {"n_probs": 1}),
        ({"id_slot": 1, "cache_prompt": False}, {"id_slot": 1, "cache_prompt": False}),
    ],
)
async def test_known_keys_are_sent_under_the_servers_names(extra: Any, sent: Any) -> None:
    answer = {**EXCHANGES["cmpl.ids_raw"]["response"], "generation_settings": {}}
    server = Replayed([answer])
    async with server.engine() as engine:
        await engine.from_ids(PROMPT, Sampling(max_tokens=8, extra=extra))
    assert sent.items() <= server.requests[0].items()


REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "a schema that may be ignored": ({"extra": {"json_schema": {}}}, UnsupportedError),
    "another prompt's cache": ({"extra": {"n_cache_reuse": 64}}, UnsupportedError),
    "an unknown key": ({"extra": {"top_kk": 5}}, UnsupportedError),
    "no log-probabilities": ({"extra": {"n_probs": 0}}, InputError),
    "another prompt": ({"extra": {"prompt": "hi"}}, InputError),
    "a schema before reasoning": ({"constraint": Constraint(schema={"type": "object"})}, UnsupportedError),
    "one call": ({"constraint": Constraint(one_call=True)}, UnsupportedError),
    "a forced call": ({"constraint": Constraint(must_call=())}, UnsupportedError),
    "no ids": ({"max_tokens": 0}, InputError),
}


CLOSED = (*PROMPT, *family().encode("</think>"))
SCHEMA = {"type": "object", "required": ["a"]}
BOUND = Sampling(max_tokens=8, seed=7, temperature=1.0, constraint=Constraint(schema=SCHEMA))


def schema_answers(first: int) -> list[Any]:
    """Return answers to the question whether a schema binds, and to a turn after `CLOSED`."""
    one = EXCHANGES["cmpl.ids_raw"]["response"]
    settings = {**one["generation_settings"], "grammar": "%llguidance {}", "temperature": 1.0}
    settings |= {name: value for name, value in NEUTRAL.items() if name in settings}
    turn = {**one, "tokens_evaluated": len(CLOSED), "generation_settings": settings}
    return [{"tokens": [first]}, turn]


async def test_a_schema_that_binds_goes_along() -> None:
    server = Replayed([*schema_answers(5), schema_answers(5)[1]])
    async with server.engine() as engine:
        replies = [await engine.from_ids(CLOSED, BOUND) for _ in range(2)]
    (letter,) = family().encode("z")
    probe, *turns = server.requests
    assert (probe["json_schema"], probe["logit_bias"], probe["n_predict"]) == (SCHEMA, [[letter, 1000]], 1)
    assert [body["json_schema"] for body in turns] == [SCHEMA] * 2  # asked once whether it binds
    assert all("logit_bias" not in body for body in turns)
    assert replies[0].completion_ids


async def test_a_schema_that_the_server_ignores_is_refused() -> None:
    """A letter that begins no JSON is sampled in spite of it."""
    (letter,) = family().encode("z")
    server = Replayed(schema_answers(letter))
    async with server.engine() as engine:
        with pytest.raises(UnsupportedError, match="makes no grammar of it, and ignores it"):
            await engine.from_ids(CLOSED, BOUND)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("changed", "rendering", "why"),
    [
        ({}, Rendering(tools=({"type": "function"},)), "without tools, and not by the form of tool calls"),
        ({"constraint": Constraint(schema=SCHEMA, must_call=())}, None, "not by the form of tool calls"),
    ],
)
async def test_a_grammar_of_calls_is_refused(changed: Any, rendering: Rendering | None, why: str) -> None:
    server = Replayed([])
    async with server.engine() as engine:
        with pytest.raises(UnsupportedError, match=why):
            await engine.from_ids(CLOSED, attrs.evolve(BOUND, **changed), rendering)
        with pytest.raises(InputError, match="grammar and tool_choice"):
            await engine.from_ids(CLOSED, attrs.evolve(BOUND, extra={"grammar": "root ::= x"}))
    assert not server.requests


@pytest.mark.parametrize("name", REFUSED)
async def test_what_the_server_cannot_do_is_refused(name: str) -> None:
    arguments, kind = REFUSED[name]
    server = Replayed([])
    async with server.engine() as engine:
        with pytest.raises(kind):
            await engine.from_ids(PROMPT, Sampling(**{"max_tokens": 8, **arguments}))
    assert not server.requests


async def test_without_a_number_the_rest_of_the_context_is_asked_for() -> None:
    """The server would go on to the end of the context anyway; then it is in the request."""
    answer = {**EXCHANGES["cmpl.ids_raw"]["response"], "generation_settings": {}}
    server = Replayed([answer])
    async with server.engine() as engine:
        await engine.from_ids(PROMPT, Sampling())
    assert server.requests[0]["n_predict"] == 2048 - len(PROMPT)


async def test_a_stop_id_must_end_turns_of_the_server_by_itself() -> None:
    forced = EXCHANGES["cmpl.force_eos"]["response"]
    turn = {**EXCHANGES["cmpl.ids_raw"]["response"], "generation_settings": {}}
    server = Replayed([forced, turn, turn, EXCHANGES["cmpl.force_im_start"]["response"]])
    async with server.engine() as engine:
        for _ in range(2):
            reply = await engine.from_ids(PROMPT, Sampling(max_tokens=8, stop_ids=(END,)))
            assert list(reply.completion_ids) == turn["tokens"]
        assert [body["prompt"] for body in server.requests] == [[END], list(PROMPT), list(PROMPT)]
        with pytest.raises(UnsupportedError, match="4088 does not end a turn"):
            await engine.from_ids(PROMPT, Sampling(max_tokens=8, stop_ids=(END, 4088)))
    assert not server.answers


async def test_sizes_are_the_servers() -> None:
    async with Replayed([]).engine() as engine:
        assert await engine.limits() == ModelLimits(max_model_len=2048, vocab_size=4096)


def listing(**card: Any) -> LlamaCpp:
    """Return an engine whose server lists one model."""
    answer = {"data": [{"id": "a", "aliases": ["b"], **card}]}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json=answer))
    return LlamaCpp("http://mock", family=family(), transport=transport, model=card.pop("asked", None))


async def test_a_model_without_sizes_needs_a_number() -> None:
    """A server that has not loaded its model lists it so."""
    async with listing(meta=None) as engine:
        assert await engine.limits() == ModelLimits(vocab_size=4096)
        with pytest.raises(InputError, match="max_tokens is None"):
            await engine.from_ids(PROMPT, Sampling())


async def test_an_id_that_only_the_folder_has_is_not_sent() -> None:
    """Gemma 3's folders have one id more than its smallest model."""
    async with listing(meta={"n_ctx": 2048, "n_vocab": 4000}) as engine:
        with pytest.raises(InputError, match="4088 is not in the vocabulary of 4000"):
            await engine.from_ids([1, 4088], Sampling(max_tokens=1))


@pytest.mark.parametrize(("name", "known"), [("a", True), ("b", True), ("c", False)])
async def test_the_models_name_is_compared_with_the_list(name: str, known: bool) -> None:
    """The server answers to any name."""
    async with listing(asked=name, meta={"n_ctx": 2048, "n_vocab": 4096}) as engine:
        if not known:
            with pytest.raises(InputError, match="not 'c'"):
                await engine.served()
            return
        served = await engine.served()
        assert served == LlamaModel("a", 2048, vocab_size=4096, aliases=("b",))
