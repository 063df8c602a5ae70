"""What speculative decoding leaves in replies is counted: ids past a stop string, values of exactly 0."""

from __future__ import annotations

import attrs
import pytest

from tests.io.engines.aborting_engine import AbortingEngine
from tests.io.serve.gateway import chat, opened
from tests.io.serve.gateway import client as gateway_client
from tito_core import SamplingMask
from tito_io.client.token_client import TokenClient
from tito_io.engines.protocol import (
    InvalidReplyError,
    Reply,
    SampleRequest,
)
from tito_io.serve.gateway import build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
PROMPT = [{"role": "user", "content": "be"}]


@attrs.define
class Speculating(AbortingEngine):
    """Samples two ids more than it looked at for a stop string, and gives 0 for drafts."""

    past: int = 2
    zeros: int = 0

    async def sample(self, request: SampleRequest) -> Reply:
        reply = await AbortingEngine.sample(self, request)
        drafts = (97,) * self.past if reply.stop_reason else ()
        values = list(reply.logprobs or ()) + [-1.0] * len(drafts)
        values[: self.zeros] = [0.0] * self.zeros
        return attrs.evolve(reply, completion_ids=(*reply.completion_ids, *drafts), logprobs=tuple(values))


@pytest.mark.parametrize(("past", "notices"), [(0, {}), (1, {"ids-past-stop": 1}), (2, {"ids-past-stop": 1})])
async def test_ids_past_a_stop_string_stay_and_are_told(past: int, notices: dict[str, int]) -> None:
    client = TokenClient(Speculating(past=past))
    given = {"max_tokens": 90, "stop": ["dd", "cc", "bb"]}
    done = await client.turn([], PROMPT, sampling=given)
    assert done.turn.reply.finish_reason == "stop"
    assert client.counts.notices == notices
    assert len(done.step.completion_ids) == len(done.turn.reply.text) + 2 + past


async def test_log_probabilities_of_exactly_0_are_counted_by_id() -> None:
    for zeros, temperature, notices in ((0, 1.0, {}), (3, 1.0, {"logprobs-zero": 1}), (3, 0.0, {})):
        client = TokenClient(Speculating(zeros=zeros))
        done = await client.turn([], PROMPT, sampling={"max_tokens": 6, "temperature": temperature})
        assert client.counts.notices == notices
        assert client.counts.zero_logprobs == zeros
        assert (done.step.logprobs or ()).count(0.0) == zeros


@attrs.define
class Masked(Speculating):
    """Gives 0 for its first three ids, and masks of so many ids for these."""

    sizes: tuple[int, ...] = (1, 1, 1)

    async def sample(self, request: SampleRequest) -> Reply:
        reply = await Speculating.sample(self, request)
        sizes = (*self.sizes, *[2] * len(reply.completion_ids))
        kept = [
            [one, *range(200, 199 + size)] for one, size in zip(reply.completion_ids, sizes, strict=False)
        ]
        return attrs.evolve(reply, sampling_mask=SamplingMask.of(kept))


@pytest.mark.parametrize(("sizes", "zeros"), [((1, 1, 1), 0), ((1, 2, 1), 1), ((3, 2, 2), 3)])
async def test_an_id_that_is_alone_in_its_mask_was_certain(sizes: tuple[int, ...], zeros: int) -> None:
    """Its value is 0 for that reason; beside others, 0 says that the value was not computed."""
    client = TokenClient(Masked(zeros=3, sizes=sizes), sampling_masks=True)
    await client.turn([], PROMPT, sampling={"max_tokens": 6})
    assert (client.counts.zero_logprobs, client.counts.notices["logprobs-zero"]) == (zeros, int(zeros > 0))


@pytest.mark.parametrize("sizes", [None, (1, 0, 1)])
async def test_a_sampled_id_without_a_mask_that_was_asked_for_is_an_error(
    sizes: tuple[int, ...] | None,
) -> None:
    @attrs.define
    class Lacking(Masked):
        async def sample(self, request: SampleRequest) -> Reply:
            reply = await Masked.sample(self, request)
            mask = None if sizes is None else SamplingMask.of([None, *list(reply.sampling_mask or ())[1:]])
            return attrs.evolve(reply, sampling_mask=mask)

    engine = Lacking()
    with pytest.raises(InvalidReplyError, match="did not come for all ids") as caught:
        await TokenClient(engine, sampling_masks=True).turn([], PROMPT, sampling={"max_tokens": 6})
    assert caught.value.partial is not None
    assert len(engine.asked) == 1
    await TokenClient(Lacking()).turn([], PROMPT, sampling={"max_tokens": 6})


@pytest.mark.parametrize("noticed", [(), (0,), (1,), (0, 2), (0, 1, 2)])
async def test_a_notice_of_any_of_several_turns_is_counted_once(noticed: tuple[int, ...]) -> None:
    @attrs.define
    class Several(AbortingEngine):
        async def sample(self, request: SampleRequest) -> Reply:
            reply = await AbortingEngine.sample(self, request)
            turns = [attrs.evolve(one, siblings=()) for one in (reply, *reply.siblings)]
            for place in noticed:
                turns[place] = attrs.evolve(turns[place], notices=("flagged", "flagged", "other"))
            return attrs.evolve(turns[0], siblings=tuple(turns[1:]))

    client = TokenClient(Several())
    await client.turn([], PROMPT, sampling={"max_tokens": 6, "n": 3})
    assert client.counts.notices == ({"flagged": 2, "other": 1} if noticed else {})
    gateway = build_gateway(Several(), MemoryStore(), model="m")
    async with gateway_client(gateway) as http:
        await chat(http, await opened(http), PROMPT, max_tokens=6, n=3)
    text = gateway.metrics.text().decode()
    assert ('tito_notices_total{name="flagged"} 2.0' in text) == bool(noticed)
    assert ('tito_notices_total{name="other"} 1.0' in text) == bool(noticed)
