"""Every recorded answer of `/completion` to ids, here and in the folder that TITO_EXCHANGES names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.engines.llamacpp.recorded import EXCHANGES, Exchange, replayed
from tests.io.engines.recorded_exchanges import recorded
from tito_io.engines.llamacpp.requests import COMPLETION

pytestmark = pytest.mark.anyio

ALL = [*EXCHANGES.items(), *((one["name"], one) for one in recorded("llamacpp.jsonl"))]


def _could_be_ours(one: Exchange) -> bool:
    """Whether the adapter could have made the request, but for its samplers."""
    request = one["request"]
    if one["path"] != COMPLETION or not isinstance(request, dict) or "response_fields" in request:
        return False
    ids = request.get("prompt")
    flat = isinstance(ids, list) and bool(ids) and all(type(index) is int for index in ids)
    whole = request.get("return_tokens") and request.get("n_probs") and request.get("n_predict")
    return flat and bool(whole) and not request.get("stream") and not request.get("post_sampling_probs")


OURS = {name: one for name, one in ALL if one["status"] == 200 and _could_be_ours(one)}


@pytest.mark.parametrize("name", OURS)
async def test_an_answer_is_read(name: str) -> None:
    one = OURS[name]
    reply, _ = await replayed(one)
    answers: Any = one["response"] if isinstance(one["response"], list) else [one["response"]]
    turns = (reply, *reply.siblings)
    assert [list(turn.completion_ids) for turn in turns] == [answer["tokens"] for answer in answers]
    for turn, answer in zip(turns, answers, strict=True):
        reported = [
            entry["logprob"] for entry in answer.get("completion_probabilities", ()) if entry["top_logprobs"]
        ]
        assert len(turn.logprobs or ()) == len(turn.completion_ids)
        assert {value for value in turn.logprobs or () if value is not None} <= set(reported)
