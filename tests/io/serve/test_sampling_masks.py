"""Sampling masks of a gateway's turns: sampled, stored, read again, in rows and in samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.io.samples.sample_files import put, read
from tests.io.serve.gateway import HELLO, Scripted, Talk, talking, user
from tito_core import SamplingMask
from tito_core.samples import make_rows
from tito_io.embedded import MODEL, SampledId, family
from tito_io.embedded.logprobs import REACH, logprob
from tito_io.embedded.support import Truncation, support
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.registry import embedded
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import samples
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
TOP_P = 0.8


def gateway(*, masks: bool = True) -> Gateway:
    """Return a gateway in front of the embedded engine."""
    engine, options = embedded(seed=5, sampling_masks=masks), GatewayOptions(sampling_masks=masks)
    return build_gateway(engine, MemoryStore(), model=MODEL, family=family(), options=options)


async def talked(talk: Talk) -> None:
    """Take turns on two branches, one streamed, and one that goes on with a cut turn."""
    prompt = await talk.turns(2, max_tokens=60, top_p=TOP_P, seed=1)
    await talk.turns(1, [*prompt[:-1], user("other")], max_tokens=60, top_p=TOP_P, n=2)
    body = {"messages": prompt, "max_tokens": 60, "top_p": TOP_P, "stream": True}
    answer = await talk.post(body)
    assert answer.status_code == 200
    cut = await talk.said([*prompt, user("more")], max_tokens=2, top_p=TOP_P, seed=2)
    await talk.chat([*prompt, user("more"), cut], max_tokens=9, top_p=TOP_P, continue_final_message=True)


async def test_every_turn_keeps_its_own_masks_in_the_store_in_calls_and_in_rows(tmp_path: Path) -> None:
    async with talking(gateway()) as talk:
        await talked(talk)
        steps = [one.step for one in await talk.commits()]
        calls = (await talk.get("/calls")).content
        talk.unload()
        again = [one.step for one in await talk.commits()]
        forest = (await talk.session()).forest
        container = (await talk.get("/samples")).content
    assert len(steps) > 5
    assert again == steps
    for step in steps:
        assert step.sampling_mask is not None
        assert step.logprobs is not None
        exact = [support_of(step.ids.tolist(), place) for place in range(len(step.prompt_ids), len(step.ids))]
        assert step.sampling_mask == SamplingMask.of(list(one) for one in exact)
        own = [kept[index] for kept, index in zip(exact, step.completion_ids, strict=True)]
        assert list(step.logprobs) == own
    (stored,), problems = read(put(tmp_path, calls))
    assert not problems
    assert [one.step for one in stored.forest.calls] == steps
    rows = make_rows(forest).rows
    assert make_rows(stored.forest).rows == rows
    found = samples(Check("GET /samples", EngineAnswer(200, b"")), container).samples
    for row, sample in zip(rows, found, strict=True):
        start = len(row.ids) - sample.response_length
        assert row.sampling_mask is not None
        assert sample.rollout_sampling_mask is not None
        # Miles takes no position without a mask: what was not sampled has its own id alone.
        alone = [[one] for one in row.ids[start:]]
        kept = [list(one) or own for one, own in zip([*row.sampling_mask][start:], alone, strict=True)]
        assert [list(one) for one in sample.rollout_sampling_mask] == kept


def support_of(ids: list[int], place: int) -> dict[int, float]:
    """Return the ids that could have been sampled at a place, with their values over these."""
    before = tuple(ids[max(place - REACH, 0) : place])
    step = SampledId(ids[place], logprob(before, ids[place]), before, "")
    return support(step, Truncation(top_p=TOP_P))


async def test_without_the_option_nothing_stored_or_sent_has_a_mask() -> None:
    async with talking(gateway(masks=False)) as talk:
        await talked(talk)
        assert all(one.step.sampling_mask is None for one in await talk.commits())
        for path in ("", "/calls", "/samples"):
            assert b"mask" not in (await talk.get(path)).content.replace(b"loss_mask", b"")


async def test_a_turn_without_the_masks_that_were_asked_for_is_an_error_and_is_not_kept() -> None:
    engine = Scripted()
    async with talking(engine, choices=GatewayOptions(sampling_masks=True)) as talk:
        answer = await talk.post({"messages": HELLO})
        assert (answer.status_code, "sampling masks" in answer.text) == (502, True)
        assert not await talk.commits()
    assert engine.asked[0][2].sampling_masks
    assert len(engine.asked) == 1


@pytest.mark.parametrize("body", [{"temperature": 0}, {"top_k": 0}])
async def test_an_engine_that_cannot_mask_a_request_says_which_argument_to_change(body: Any) -> None:
    async with talking(gateway()) as talk:
        answer = await talk.post({"messages": HELLO, **body})
        assert answer.status_code == 400
        assert f"requires {next(iter(body))} > 0" in answer.text
        assert not await talk.commits()
