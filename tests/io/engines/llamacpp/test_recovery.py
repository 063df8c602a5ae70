"""Log-probabilities that the server left out, asked for afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.engines.llamacpp.recorded import EXCHANGES, PROMPT, Exchange, replayed
from tito_io.engines.llamacpp import LlamaCppNotice
from tito_io.engines.llamacpp.recovery import FEW
from tito_io.engines.llamacpp.requests import NEUTRAL

pytestmark = pytest.mark.anyio

RECOVERING = {"recover_logprobs": True}
MISSING = {1: 172, 2: 253, 3: 99, 6: 172, 7: 253, 8: 99}
"""The ids of the recorded turn that have no entry."""


def scored(place: int, *listed: tuple[int, float | None]) -> dict[str, Any]:
    """Return the answer to a question for the id at a place: the recorded form, with other alternatives."""
    answer = EXCHANGES["cmpl.score_one"]["response"]
    entry = answer["completion_probabilities"][0]
    top = [{**entry["top_logprobs"][0], "id": index, "logprob": value} for index, value in listed]
    more = {
        "tokens_evaluated": len(PROMPT) + place,
        "completion_probabilities": [{**entry, "top_logprobs": top}],
    }
    return {**answer, **more}


def refused() -> Exchange:
    return {"status": 500, "response": {"error": {"code": 500, "message": "no", "type": "server_error"}}}


async def test_what_is_missing_is_asked_for_in_order() -> None:
    answers = [scored(place, (5, -0.1), (index, -float(place))) for place, index in MISSING.items()]
    plain, _ = await replayed("cmpl.emoji")
    reply, server = await replayed("cmpl.emoji", *answers, options=RECOVERING)
    wanted = [
        -float(place) if place in MISSING else value for place, value in enumerate(plain.logprobs or ())
    ]
    assert reply.logprobs == tuple(wanted)
    assert reply.notices == (LlamaCppNotice.LOGPROBS_RECOVERED,)
    bodies = server.requests[1:]
    assert [body["prompt"] for body in bodies] == [
        [*PROMPT, *reply.completion_ids[:place]] for place in MISSING
    ]
    assert all(body.items() >= {**NEUTRAL, "n_probs": FEW, "n_predict": 1}.items() for body in bodies)
    assert {tuple(map(tuple, body["logit_bias"])) for body in bodies} == {((64, 1000),)}


async def test_an_unlikely_id_is_looked_for_in_the_whole_vocabulary() -> None:
    first, *others = MISSING.items()
    found = [scored(place, (index, -1.0)) for place, index in others]
    answers = [scored(first[0], (5, -0.1)), scored(first[0], (5, -0.1), (first[1], -15.0)), *found]
    reply, server = await replayed("cmpl.emoji", *answers, options=RECOVERING)
    assert (reply.logprobs or ())[first[0]] == -15.0
    assert [body["n_probs"] for body in server.requests[1:4]] == [FEW, 4096, FEW]


@pytest.mark.parametrize("answer", [refused(), scored(0, (172, -1.0))])
async def test_a_server_that_fails_is_not_asked_again_and_the_turn_is_kept(answer: Any) -> None:
    """An error, or an answer about another prompt."""
    others = [scored(1, (172, -2.0)), answer]
    reply, server = await replayed("cmpl.emoji", *others, options=RECOVERING)
    assert [(reply.logprobs or ())[place] for place in MISSING] == [-2.0, None, None, None, None, None]
    notices = (LlamaCppNotice.LOGPROBS_MISSING, LlamaCppNotice.LOGPROBS_RECOVERED)
    assert (len(server.requests), len(reply.completion_ids), reply.notices) == (3, 11, notices)


async def test_a_value_that_the_server_does_not_have_stays_none() -> None:
    answers = [scored(place, (index, None)) for place, index in MISSING.items() for _ in range(2)]
    reply, _ = await replayed("cmpl.emoji", *answers, options=RECOVERING)
    assert {(reply.logprobs or ())[place] for place in MISSING} == {None}
    assert reply.notices == (LlamaCppNotice.LOGPROBS_MISSING,)


async def test_the_adapters_of_the_turn_score_it_too() -> None:
    answers = [scored(place, (index, -1.0)) for place, index in MISSING.items()]
    extra = {"lora": [{"id": 0, "scale": 0.5}], "id_slot": 2, "top_k": 5}
    one = EXCHANGES["cmpl.emoji"]
    plain = {**one, "response": {**one["response"], "generation_settings": {}}}
    _, server = await replayed(plain, *answers, options=RECOVERING, extra=extra)
    assert all(body["lora"] == extra["lora"] and body["id_slot"] == 2 for body in server.requests)
    assert [body["top_k"] for body in server.requests] == [5, 0, 0, 0, 0, 0, 0]


async def test_a_turn_that_lacks_nothing_costs_no_request() -> None:
    reply, server = await replayed("cmpl.ids_raw", options=RECOVERING)
    assert (len(server.requests), reply.notices) == (1, ())


async def test_each_turn_of_a_request_is_completed() -> None:
    one = EXCHANGES["cmpl.n2"]
    first, second = one["response"]
    bare = {name: value for name, value in second.items() if name != "completion_probabilities"}
    answers = [scored(place, (index, -3.0)) for place, index in enumerate(second["tokens"])]
    reply, server = await replayed({**one, "response": [first, bare]}, *answers, options=RECOVERING)
    (other,) = reply.siblings
    assert (other.logprobs, other.notices) == ((-3.0, -3.0), (LlamaCppNotice.LOGPROBS_RECOVERED,))
    assert (None in (reply.logprobs or ()), reply.notices) == (False, ())
    assert [body["prompt"] for body in server.requests[1:]] == [
        list(PROMPT),
        [*PROMPT, second["tokens"][0]],
    ]
