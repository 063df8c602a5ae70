"""From answers of llama.cpp to replies: what is checked, and what is left None."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.engines.llamacpp.recorded import EXCHANGES, Exchange, replayed
from tito_io.engines.llamacpp import LlamaCppNotice
from tito_io.engines.llamacpp.replies import aligned
from tito_io.engines.protocol import (
    AuthenticationError,
    EngineAnswer,
    EngineError,
    InvalidReplyError,
    OverlongError,
    RequestError,
    ServerError,
)
from tito_io.engines.replies.invariants import Check

CHECK = Check("POST http://mock/completion", EngineAnswer(200, None))


def changed(name: str = "cmpl.ids_raw", **fields: Any) -> Exchange:
    """Return an exchange whose answer has other fields; ... leaves one out."""
    one = EXCHANGES[name]
    answer = {**one["response"], **fields}
    return {**one, "response": {key: value for key, value in answer.items() if value is not ...}}


def entries(ids: list[int], known: list[bool]) -> list[dict[str, Any]]:
    return [
        {"id": index, "logprob": -float(place), "top_logprobs": [{}]}
        for place, (index, listed) in enumerate(zip(ids, known, strict=True))
        if listed
    ]


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=9))
def test_a_log_probability_is_never_another_ids(pairs: list[tuple[int, bool]]) -> None:
    """Whatever ids have no entry, an id has its own value or none."""
    ids, known = [index for index, _ in pairs], [listed for _, listed in pairs]
    values = aligned(CHECK, ids, entries(ids, known))
    assert all(value in (None, -float(place)) for place, value in enumerate(values))
    assert all(value is None for value, listed in zip(values, known, strict=True) if not listed)


@given(st.lists(st.booleans(), max_size=9))
def test_of_different_ids_every_entry_is_used(known: list[bool]) -> None:
    values = aligned(CHECK, list(range(len(known))), entries(list(range(len(known))), known))
    assert [value is not None for value in values] == known


def test_an_entry_that_fits_two_places_fits_none() -> None:
    assert aligned(CHECK, [7, 7, 8], entries([7, 7, 8], [False, True, True])) == [None, None, -2.0]


@pytest.mark.anyio
async def test_a_whole_answer_is_read() -> None:
    reply, server = await replayed("cmpl.ids_raw")
    assert reply.notices == ()
    assert len(reply.completion_ids) == len(reply.logprobs or ()) == 8
    assert None not in (reply.logprobs or ())
    assert attrs.astuple(reply.usage) == (18, 8, 17)
    assert reply.text == " butp_errorsMP enum_Cex diffe"
    assert (reply.finish_reason, reply.stop_reason, reply.truncated) == ("length", None, True)
    assert list(reply.prompt_ids) == server.requests[0]["prompt"]


BROKEN = {
    "ids that are not asked for": changed(tokens=[], tokens_predicted=8),
    "a stop string that is not named": changed(stop_type="word", stopping_word=...),
    "entries of other ids": changed(
        completion_probabilities=[{"id": 1, "logprob": -1.0, "top_logprobs": []}]
    ),
    "other samplers": changed(generation_settings={"top_k": 40}),
    "a grammar that was not sent": changed(generation_settings={"grammar": 'root ::= "ok"'}),
    "tempered probabilities": changed(generation_settings={"post_sampling_probs": True}),
    "no turn": {**EXCHANGES["cmpl.ids_raw"], "response": [{}]},
    "indexes twice": {**EXCHANGES["cmpl.n2"], "response": [EXCHANGES["cmpl.n2"]["response"][0]] * 2},
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", BROKEN)
async def test_an_answer_that_does_not_hold_together_is_no_reply(name: str) -> None:
    with pytest.raises(InvalidReplyError):
        await replayed(BROKEN[name], temperature=1.0, extra={}, n=2 if "twice" in name else 1)


@pytest.mark.anyio
async def test_samplers_that_a_build_does_not_know_are_found_out() -> None:
    """It leaves them out silently."""
    names = ["dynamic_typo", "temperature"]
    with pytest.raises(InvalidReplyError, match="samplers = "):
        await replayed(changed(generation_settings={"samplers": names[1:]}), extra={"samplers": names})
    reply, _ = await replayed(changed(generation_settings={"samplers": names}), extra={"samplers": names})
    assert reply.completion_ids


@pytest.mark.anyio
async def test_tempered_probabilities_are_never_taken_for_raw_ones() -> None:
    with pytest.raises(InvalidReplyError, match="post_sampling_probs"):
        await replayed("cmpl.post_sampling_t2")


@pytest.mark.anyio
async def test_a_log_probability_that_underflows_is_none() -> None:
    answer = EXCHANGES["cmpl.force_eos"]["response"]
    lowest = {**answer["completion_probabilities"][0], "logprob": -3.4028235e38}
    reply, _ = await replayed(changed("cmpl.force_eos", completion_probabilities=[lowest]))
    assert reply.logprobs == (None,)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("content", "notices"),
    [(" butp_errorsMP enum_Cex diffe", ()), ("another model's", (LlamaCppNotice.OTHER_TEXT,))],
)
async def test_a_server_that_spells_ids_otherwise_is_told_of(content: str, notices: tuple[str, ...]) -> None:
    reply, _ = await replayed(changed(content=content))
    assert reply.notices == notices


@pytest.mark.anyio
async def test_a_stop_string_that_is_not_in_the_ids_leaves_the_servers_text() -> None:
    """One that stands around a special token: the server matches text without them."""
    reply, _ = await replayed(changed("cmpl.stop_word", stopping_word="zz", content=" form"))
    assert reply.text == " form"


UNAUTHORIZED = {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}}
TOO_MANY = "Field 'n': Value must be between 1 <= value <= 4, but got 9"
BUSY = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
ERRORS: dict[str, tuple[int, Any, type[EngineError]]] = {
    "err.oov": (400, None, RequestError),
    "err.bad_grammar": (400, None, RequestError),
    "cmpl.len_2048": (400, None, OverlongError),
    "a wrong key": (401, UNAUTHORIZED, AuthenticationError),
    "a model that is being loaded": (503, BUSY, ServerError),
}


@pytest.mark.anyio
async def test_more_turns_than_slots_are_told_with_their_number() -> None:
    body = {"error": {"code": 400, "message": TOO_MANY, "type": "invalid_request_error"}}
    with pytest.raises(RequestError, match=r"between 1 <= value <= 4, but got 9"):
        await replayed({"request": {"prompt": [1]}, "status": 400, "response": body}, n=9)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ERRORS)
async def test_a_refusal_is_the_error_that_it_amounts_to(name: str) -> None:
    status, body, kind = ERRORS[name]
    answer = body or EXCHANGES[name]["response"]
    with pytest.raises(EngineError) as caught:
        await replayed({"request": {"prompt": [1]}, "status": status, "response": answer})
    assert type(caught.value) is kind
    assert ("being loaded" in str(caught.value)) == (status == 503)
