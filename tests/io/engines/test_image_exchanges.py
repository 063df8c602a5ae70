"""All recorded exchanges with images, answered again to the adapters; `TITO_EXCHANGES` names their folder.

Every recorded prompt with images is either sent as it was recorded, or refused before anything is sent. What
ended an engine, or was never answered, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.io.engines.recorded_exchanges import parameters, recorded
from tests.io.engines.recorded_images import PAD, SMOL_PAD, medium
from tests.io.engines.sglang.sglang_server import mocked as sglang
from tests.io.engines.vllm.vllm_server import mocked as vllm
from tito_core import InputError
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import EngineError, PromptMedium, Sampling
from tito_io.engines.sglang import requests
from tito_io.engines.vllm import GENERATE

pytestmark = pytest.mark.anyio
EXCHANGES = recorded("vllm_images.jsonl")
MODEL = {"id": "m", "object": "model", "root": "m", "parent": None, "max_model_len": 4096}
BARE = "sgl_two_images"
"""SGLang does not answer this one, for lack of the tokens that the template writes around a placeholder. An
adapter cannot see that: clients send placeholders that the template wrote, and no others."""
ENDED_THE_ENGINE = ("f_modality_audio", "nocache_features_hash_only_seen", "api2_features_hash_only")


def those(holds: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """Return the exchanges for which something holds, as parameters."""
    return parameters(one for one in EXCHANGES if holds(one))


def prompt_of(exchange: dict[str, Any]) -> tuple[list[int], list[PromptMedium]]:
    """Return the ids and images of a recorded request, each image at the next placeholder."""
    request, pad = exchange["request"], SMOL_PAD if "smolvlm" in exchange["server"] else PAD
    ids = request.get("token_ids") or request["input_ids"]
    parts = request.get("content_parts") or [{} for _ in request["image_data"]]
    places = [place for place, index in enumerate(ids) if index == pad]
    places += range(len(ids), len(ids) + len(parts))  # an image that has none
    keys = [part.get("uuid") or f"image {number}" for number, part in enumerate(parts)]
    return ids, [medium(key, place, pad=pad) for key, place in zip(keys, places, strict=False)]


@contextmanager
def nothing_sent(asked: list[Any]) -> Iterator[None]:
    """Expect that a prompt is refused, and no request made."""
    with pytest.raises((InputError, MediaUnsupportedError)):
        yield
    assert not asked


def fits(exchange: dict[str, Any]) -> bool:
    """Whether the request has as many placeholders as images."""
    ids, media = prompt_of(exchange)
    return len(media) == ids.count(media[0].place.collapsed[0])


@pytest.mark.parametrize("exchange", those(lambda one: (one["request"] or {}).get("content_parts")))
async def test_a_prompt_for_vllm_is_sent_as_recorded_or_refused(exchange: dict[str, Any]) -> None:
    ids, media = prompt_of(exchange)
    answer = httpx2.Response(exchange["status"], json=exchange["response"])
    answers = {GENERATE: lambda *_: answer, "/v1/models": {"object": "list", "data": [MODEL]}}
    engine, mock = vllm(answers, route="generate")
    sampling = Sampling(max_tokens=1, n=exchange["request"]["sampling_params"].get("n", 1))
    if not fits(exchange):
        with nothing_sent(mock.asked):
            await engine.from_ids_with_media(ids, media, sampling)
        return
    if exchange["status"] == 200:
        reply = await engine.from_ids_with_media(ids, media, sampling)
        assert list(reply.prompt_ids) == exchange["response"]["prompt_token_ids"]
        places = exchange["response"]["mm_placeholders"]["image"]
        assert reply.media_ranges == tuple((one["offset"], one["length"]) for one in places)
    else:
        with pytest.raises(EngineError):
            await engine.from_ids_with_media(ids, media, sampling)
    (body,) = mock.bodies(GENERATE)
    assert body["token_ids"] == ids
    assert [part["uuid"] for part in body["content_parts"]] == [one.place.identity for one in media]
    assert "features" not in body


@pytest.mark.parametrize("exchange", those(lambda one: one["name"] in ENDED_THE_ENGINE))
def test_what_ended_vllm_had_features_which_are_never_sent(exchange: dict[str, Any]) -> None:
    """That they are not sent is seen in the test above, for every prompt."""
    assert exchange["status"] == 500
    assert "features" in exchange["request"]
    assert "content_parts" not in exchange["request"]


@pytest.mark.parametrize(
    "exchange",
    those(lambda one: one["path"] == "/generate" and one["status"] == 0 and one["name"] != BARE),
)
async def test_what_sglang_never_answers_is_refused(exchange: dict[str, Any]) -> None:
    engine, mock = sglang({}, vocab_size=5000)
    with nothing_sent(mock.asked):
        await engine.from_ids_with_media(*prompt_of(exchange), Sampling(max_tokens=1))


@pytest.mark.parametrize(
    "exchange",
    those(
        lambda one: (
            one["path"] == "/generate" and one["status"] == 200 and (one["request"] or {}).get("image_data")
        )
    ),
)
async def test_a_prompt_for_sglang_is_sent_as_recorded_or_refused(exchange: dict[str, Any]) -> None:
    ids, media = prompt_of(exchange)
    answers = {
        requests.GENERATE: lambda _: httpx2.Response(200, json=exchange["response"]),
        "/v1/models": {"object": "list", "data": [MODEL]},
    }
    engine, mock = sglang(answers, vocab_size=5000)
    if not fits(exchange):
        with nothing_sent(mock.asked):
            await engine.from_ids_with_media(ids, media, Sampling(max_tokens=1))
        return
    reply = await engine.from_ids_with_media(ids, media, Sampling(max_tokens=1))
    assert list(reply.prompt_ids) == exchange["response"]["prompt_token_ids"]
    (body,) = [body for path, body in mock.asked if path == requests.GENERATE]
    assert (body["input_ids"], len(body["image_data"])) == (ids, len(media))
