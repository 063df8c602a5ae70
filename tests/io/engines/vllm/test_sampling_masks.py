"""Sampling masks of vLLM: whether a server sends them is asked once, before a turn is sampled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.engines.vllm.test_generate import SHUT
from tests.io.engines.vllm.vllm_server import PROMPT, completion_answer, generate_answer, mocked, refused
from tito_core import SamplingMask
from tito_io.engines.protocol import Rendering, RequestError, Sampling
from tito_io.engines.sampling_masks import MasksUnsupportedError
from tito_io.engines.vllm import COMPLETIONS, GENERATE

pytestmark = pytest.mark.anyio
MASKS = Sampling(max_tokens=5, sampling_masks=True, extra={"top_k": 9})
KEPT = [[7, 9], [8]]
PROBE = {"max_tokens": 1, "temperature": 1.0, "top_k": 1, "skip_special_tokens": False}


async def test_a_server_is_asked_once_whether_it_sends_masks() -> None:
    engine, mock = mocked({GENERATE: generate_answer(kept=KEPT)}, route="generate")
    mock.answers[GENERATE] = lambda _, body: (
        generate_answer([7], kept=[[7]]) if body["token_ids"] == [0] else generate_answer(kept=KEPT)
    )
    for _ in range(2):
        reply = await engine.from_ids(PROMPT, MASKS)
        assert reply.sampling_mask == SamplingMask.of(KEPT)
    probe, *turns = mock.bodies(GENERATE)
    assert (probe["token_ids"], probe["sampling_params"]) == ([0], PROBE)
    assert [one["token_ids"] for one in turns] == [list(PROMPT)] * 2


@pytest.mark.parametrize("route", ["generate", "auto", "derender"])
async def test_a_server_that_was_started_without_masks_is_named_with_its_options(route: Any) -> None:
    engine, mock = mocked({GENERATE: generate_answer()}, route=route)
    for _ in range(2):
        with pytest.raises(MasksUnsupportedError) as caught:
            await engine.from_ids(PROMPT, MASKS)
    assert "--return-sampling-mask --logprobs-mode processed_logprobs --enable-scale-out" in str(caught.value)
    assert [one["token_ids"] for one in mock.bodies(GENERATE)] == [[0], [0]]
    mock.answers[GENERATE] = generate_answer(kept=KEPT)  # it was started anew
    if route != "derender":
        assert (await engine.from_ids(PROMPT, MASKS)).sampling_mask == SamplingMask.of(KEPT)


async def test_a_closed_generate_route_is_no_reason_to_sample_without_masks() -> None:
    engine, mock = mocked({GENERATE: SHUT, COMPLETIONS: completion_answer()}, route="auto")
    for _ in range(2):
        with pytest.raises(MasksUnsupportedError, match="--enable-scale-out"):
            await engine.from_ids(PROMPT, MASKS)
    assert not mock.bodies(COMPLETIONS)


async def test_a_generate_route_that_closes_later_is_none_either() -> None:
    engine, mock = mocked(
        {GENERATE: generate_answer(kept=KEPT), COMPLETIONS: completion_answer()}, route="auto"
    )
    await engine.from_ids(PROMPT, MASKS)
    mock.answers[GENERATE] = SHUT
    with pytest.raises(MasksUnsupportedError, match="is closed"):
        await engine.from_ids(PROMPT, MASKS)
    assert not mock.bodies(COMPLETIONS)


async def test_a_turn_after_messages_goes_by_ids() -> None:
    """Chats have no masks. The server renders first."""
    engine, mock = mocked({GENERATE: generate_answer(prompt=(1, 2, 3), kept=KEPT)}, route="generate")
    reply = await engine.from_messages([{"role": "user", "content": "x"}], Rendering(), MASKS)
    assert (tuple(reply.prompt_ids), reply.sampling_mask) == ((1, 2, 3), SamplingMask.of(KEPT))
    assert mock.bodies(GENERATE)[-1]["token_ids"] == [1, 2, 3]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(MasksUnsupportedError, match="images"):
        await engine.from_messages([{"role": "user", "content": [image]}], Rendering(), MASKS)


@pytest.mark.parametrize("name", ["top_k", "temperature"])
async def test_what_the_server_demands_of_a_request_is_in_the_error(name: str) -> None:
    """As `vllm/v1/engine/input_processor.py` has it, 0.33: the text holds none of the conversation."""
    words = f"sampling distribution replay requires {name} > 0"
    engine, mock = mocked({GENERATE: generate_answer([7], kept=[[7]])}, route="generate")
    await engine.check_masks(MASKS)
    mock.answers[GENERATE] = refused(f"{words} to bound sampling mask size, reduce transfer overhead")
    with pytest.raises(RequestError, match=words):
        await engine.from_ids(PROMPT, MASKS)


async def test_a_server_that_sends_masks_unasked_is_read_as_any_other() -> None:
    engine, _ = mocked({GENERATE: generate_answer(kept=[[1], [2]])}, route="generate")
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=5))).sampling_mask is None
