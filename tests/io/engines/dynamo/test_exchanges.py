"""Recorded exchanges with a real Dynamo, answered again to the adapter.

They lie outside the project: the environment variable TITO_EXCHANGES names the folder. Each line of
`dynamo-*.jsonl.gz` is one exchange, with its name, path, request, status, content type and response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import orjson
import pytest

from tests.io.engines.recorded_exchanges import parameters, recorded
from tito_core import InputError
from tito_io.engines.dynamo import CHAT, COMPLETIONS, Dynamo, DynamoNotice
from tito_io.engines.protocol import (
    Delta,
    EngineError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    ServerError,
)

pytestmark = pytest.mark.anyio

CARD = {"id": "m", "context_window": 0}
STREAM = "text/event-stream"
EXCHANGES = [
    one
    for one in recorded("dynamo-*.jsonl.gz")
    if one["path"] in (CHAT, COMPLETIONS) and one["status"] not in (None, 405)
]
"""Those of the two routes that were answered at all."""


def _request(one: Mapping[str, Any]) -> Mapping[str, Any]:
    found = one["request"]
    return found if isinstance(found, dict) else {}


def _nvext(one: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _request(one).get("nvext")
    return found if isinstance(found, dict) else {}


def _ids(one: Mapping[str, Any]) -> Any:
    prompt = _request(one).get("prompt")
    return prompt if isinstance(prompt, list) else _nvext(one).get("token_data")


def _asks_for_ids(one: Mapping[str, Any]) -> bool:
    """Whether the request is one that the adapter could have made: it asks for all ids, of one turn."""
    request = _request(one)
    if isinstance(request.get("prompt"), str) or (
        request.get("stream") and not request.get("stream_options")
    ):
        return False
    wanted = _nvext(one).get("extra_fields") or ()
    prompted = "prompt_token_ids" in wanted or "engine_data" in wanted
    return "completion_token_ids" in wanted and prompted and request.get("n", 1) == 1


async def asked_again(one: Mapping[str, Any], seen: list[Delta]) -> Reply:
    """Ask for what the exchange asked, and be answered what it was."""

    async def watch(delta: Delta) -> None:
        seen.append(delta)

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json={"data": [CARD]})
        if isinstance(one["response"], str):
            headers = {"content-type": one["content_type"] or ""}
            return httpx2.Response(one["status"], content=one["response"].encode(), headers=headers)
        return httpx2.Response(one["status"], json=one["response"])

    request = _request(one)
    chat, ids = one["path"] == CHAT, _ids(one)
    wants = request.get("logprobs") not in (None, False) and not one["name"].startswith(MOCKER)
    options: dict[str, Any] = {"route": "chat" if chat else "completions", "logprobs": wants}
    async with Dynamo("http://mock", transport=httpx2.MockTransport(answer), **options) as engine:
        told = watch if one["content_type"] == STREAM else None
        sampling, rendering = Sampling(), Rendering(tools=tuple(request.get("tools") or ()))
        if not ids:
            return await engine.from_messages(
                [{"role": "user", "content": "x"}], rendering, sampling, watch=told
            )
        return await engine.from_ids(ids, sampling, rendering, watch=told)


def _ended_badly(one: Mapping[str, Any]) -> bool:
    return isinstance(one["response"], str) and '"error":' in one["response"]


WHOLE = [one for one in EXCHANGES if one["status"] == 200 and _asks_for_ids(one) and not _ended_badly(one)]
DROPPED = ("nvextoff.", "vllmproc.")
"""Set-ups that drop what belongs to Dynamo, all of it or on the chat route."""
DEAF = [one for one in WHOLE if one["name"].startswith(DROPPED) and one["name"] != "vllmproc.comp"]


def _proves_prompt(one: Mapping[str, Any]) -> bool:
    """Whether the answer says which prompt it was: the adapter always asks, some of these did not."""
    text = one["response"] if isinstance(one["response"], str) else orjson.dumps(one["response"]).decode()
    return '"prompt_token_ids"' in text


MOCKER = "mocker."
"""A worker that has no log-probabilities, also where they were requested."""
OTHER = ("comp.batch1", "comp.token_data")
"""Ids in a list of lists, or beside a text."""
READ = [one for one in WHOLE if one not in DEAF and _proves_prompt(one) and not one["name"].endswith(OTHER)]
UNPROVED = [one for one in WHOLE if one not in DEAF and not _proves_prompt(one)]


@pytest.mark.parametrize("one", parameters(READ))
async def test_an_answer_is_read(one: dict[str, Any]) -> None:
    seen: list[Delta] = []
    reply = await asked_again(one, seen)
    if ids := _ids(one):
        assert list(reply.prompt_ids) == ids
    if one["content_type"] == STREAM:
        assert tuple(index for delta in seen for index in delta.ids) == reply.completion_ids
        return
    told = one["response"]["nvext"]
    assert list(reply.completion_ids) == told["completion_token_ids"]
    assert reply.usage.completion_tokens == len(reply.completion_ids)
    if one["response"]["choices"][0].get("logprobs"):
        assert len(reply.logprobs or ()) == len(reply.completion_ids)


@pytest.mark.parametrize("one", parameters(UNPROVED))
async def test_an_answer_that_does_not_say_its_prompt_is_no_reply(one: dict[str, Any]) -> None:
    with pytest.raises((InvalidReplyError, InputError)):
        await asked_again(one, [])


@pytest.mark.parametrize("one", parameters(DEAF))
async def test_dynamo_trap_03_a_dropped_extension_is_found_out(one: dict[str, Any]) -> None:
    with pytest.raises(InvalidReplyError, match="drops `nvext`"):
        await asked_again(one, [])


@pytest.mark.parametrize("one", parameters(one for one in EXCHANGES if _ended_badly(one)))
async def test_dynamo_trap_08_an_error_in_a_stream_is_one(one: dict[str, Any]) -> None:
    seen: list[Delta] = []
    with pytest.raises(ServerError) as caught:
        await asked_again(one, seen)
    ids = tuple(index for delta in seen for index in delta.ids)
    partial = caught.value.partial
    assert (partial.completion_ids if partial else ()) == ids


@pytest.mark.parametrize("one", parameters(one for one in EXCHANGES if one["status"] >= 400))
async def test_a_refusal_is_the_error_that_it_amounts_to(one: dict[str, Any]) -> None:
    body = one["response"]
    details = (body.get("details") or {}) if isinstance(body, dict) else {}
    outage = one["status"] >= 500 or (one["status"] == 404 and not body)
    kind = OverlongError if details.get("type") == "context_length" else RequestError
    fake = {**one, "request": {**_request(one), "prompt": [1], "nvext": {}}}
    with pytest.raises(EngineError) as caught:
        await asked_again(fake, [])
    assert type(caught.value) is (ServerError if outage else kind)


@pytest.mark.parametrize(
    "one", parameters(one for one in EXCHANGES if one["name"] == "migration.killed.stream")
)
async def test_dynamo_trap_02_the_migrated_turn_is_whole(one: dict[str, Any]) -> None:
    reply = await asked_again(one, [])
    assert (len(reply.prompt_ids), len(reply.completion_ids), len(reply.logprobs or ())) == (28, 600, 600)
    assert reply.notices == (DynamoNotice.MIGRATED,)
