"""Every recorded answer of `/completion` to ids, here and in the folder that TITO_EXCHANGES names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.io.engines.llamacpp.recorded import EXCHANGES, Exchange, replayed
from tito_io.engines.llamacpp.requests import COMPLETION

pytestmark = pytest.mark.anyio

FOLDER = os.environ.get("TITO_EXCHANGES")


def recorded() -> Iterator[tuple[str, Exchange]]:
    """Yield the exchanges by their names."""
    yield from EXCHANGES.items()
    file = Path(FOLDER, "llamacpp.jsonl") if FOLDER else None
    for line in file.read_bytes().splitlines() if file and file.exists() else ():
        one = orjson.loads(line)
        yield one["name"], one


def _could_be_ours(one: Exchange) -> bool:
    """Whether the adapter could have made the request, but for its samplers."""
    request = one["request"]
    if one["path"] != COMPLETION or not isinstance(request, dict) or "response_fields" in request:
        return False
    ids = request.get("prompt")
    flat = isinstance(ids, list) and bool(ids) and all(type(index) is int for index in ids)
    whole = request.get("return_tokens") and request.get("n_probs") and request.get("n_predict")
    return flat and bool(whole) and not request.get("stream") and not request.get("post_sampling_probs")


OURS = {name: one for name, one in recorded() if one["status"] == 200 and _could_be_ours(one)}


@pytest.mark.parametrize("name", OURS)
async def test_an_answer_is_read(name: str) -> None:
    one = OURS[name]
    reply, _ = await replayed(one)
    answers: Any = one["response"] if isinstance(one["response"], list) else [one["response"]]
    turns = (reply, *reply.siblings)
    assert [list(turn.completion_ids) for turn in turns] == [answer["tokens"] for answer in answers]
    for turn, answer in zip(turns, answers, strict=True):
        told = [
            entry["logprob"] for entry in answer.get("completion_probabilities", ()) if entry["top_logprobs"]
        ]
        assert len(turn.logprobs or ()) == len(turn.completion_ids)
        assert {value for value in turn.logprobs or () if value is not None} <= set(told)
