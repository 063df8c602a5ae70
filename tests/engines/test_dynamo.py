"""The Dynamo adapter against a real frontend with a real vLLM worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import anyio
import attrs
import httpx2
import pytest

from tests.engines.dynamo import Deployment
from tests.engines.talk import CALL, CALL_PATTERN, HELLO, PLAIN, TOOLED, marker_id
from tests.engines.test_rollout import TERSE
from tito_core import OddStop, Policy
from tito_io.client.conversation import Conversation
from tito_io.engines.dynamo import Dynamo, DynamoNotice
from tito_io.engines.protocol import (
    Delta,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    ServerError,
)
from tito_io.families.family import Family
from tito_io.rollout.run import Rollout

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

Way = Literal["messages", "chat", "completions"]
WAYS: tuple[Way, ...] = ("messages", "chat", "completions")
CONTEXT = 8192
TURNS = 60


@pytest.fixture(scope="module")
def family(dynamo_server: Deployment) -> Family:
    """Load the served model's folder here."""
    return Family.load(dynamo_server.family)


@attrs.frozen
class Asker:
    """Asks for a turn after the same conversation by each way, in one piece or in pieces."""

    server: Deployment
    family: Family

    async def __call__(
        self,
        way: Way,
        rendering: Rendering = PLAIN,
        *,
        streamed: bool = False,
        folder: bool = True,
        **given: Any,
    ) -> Reply:
        """Return a turn's reply; what was told of it on the way must be the same."""
        wanted = Sampling(**{"temperature": 1.0, "seed": 1, **given})
        seen: list[Delta] = []

        async def watch(delta: Delta) -> None:
            seen.append(delta)

        told = watch if streamed else None
        route: Any = "completions" if way == "completions" else "chat"
        options: dict[str, Any] = {"route": route, "family": self.family if folder else None}
        async with Dynamo(self.server.base_url, **options) as engine:
            if way == "messages":
                reply = await engine.from_messages(HELLO, rendering, wanted, watch=told)
            else:
                reply = await engine.from_ids(self.prompt(rendering), wanted, rendering, watch=told)
        if streamed:
            _same(seen, reply)
        return reply

    def prompt(self, rendering: Rendering = PLAIN) -> list[int]:
        """Return the conversation's ids."""
        return self.family.ids(HELLO, tools=rendering.tools or None, add_generation_prompt=True)


def _same(seen: list[Delta], reply: Reply) -> None:
    """Demand that deltas amount to the reply."""
    assert tuple(index for delta in seen for index in delta.ids) == reply.completion_ids
    place = 0
    for delta in seen:
        end = place + len(delta.ids)
        assert delta.logprobs in (None, (reply.logprobs or ())[place:end])
        place = end
    if DynamoNotice.READ_FROM_IDS not in reply.notices:
        assert "".join(delta.text for delta in seen) == reply.text


@pytest.fixture
def ask(dynamo_server: Deployment, family: Family) -> Asker:
    """Return what asks."""
    return Asker(dynamo_server, family)


@pytest.fixture(scope="module")
def special(family: Family) -> Callable[[str], int]:
    """Return the id of a marker or a tag."""
    return partial(marker_id, family)


def forced(*ids: int) -> dict[str, Any]:
    """Return the request keys that let nothing but these ids be sampled."""
    return {"allowed_token_ids": list(ids)}


BOTH = pytest.mark.parametrize("streamed", [False, True])
EACH = pytest.mark.parametrize("way", WAYS)


@pytest.mark.parametrize("rendering", [PLAIN, TOOLED])
async def test_every_way_samples_the_same_ids(ask: Asker, rendering: Rendering) -> None:
    replies = [
        await ask(way, rendering, max_tokens=24, streamed=streamed, seed=7)
        for way in WAYS
        for streamed in (False, True)
    ]
    assert {tuple(reply.prompt_ids) for reply in replies} == {tuple(ask.prompt(rendering))}
    assert len({tuple(reply.completion_ids) for reply in replies}) == 1
    assert len({reply.logprobs for reply in replies}) == 1
    assert len(replies[0].completion_ids) == 24
    assert {reply.notices for reply in replies} == {()}


@BOTH
@EACH
async def test_an_end_of_the_models_own_is_sampled(
    ask: Asker, special: Callable[[str], int], way: Way, streamed: bool
) -> None:
    for marker in ("<|im_end|>", "<|endoftext|>"):
        reply = await ask(way, max_tokens=8, extra=forced(special(marker)), streamed=streamed)
        assert reply.completion_ids == (special(marker),)
        assert (reply.finish_reason, reply.truncated, reply.text) == ("stop", False, "")
        assert reply.stop_reason == (None if marker == "<|im_end|>" else special(marker))
        assert reply.message is not None
        assert reply.message["content"] == ""
        assert reply.notices == ()


@BOTH
@EACH
async def test_a_turn_ends_at_its_limit(ask: Asker, way: Way, streamed: bool) -> None:
    reply = await ask(way, max_tokens=5, streamed=streamed)
    assert (len(reply.completion_ids), reply.finish_reason, reply.truncated) == (5, "length", True)


@BOTH
@EACH
async def test_a_stop_string_cuts_the_text_and_no_id(
    ask: Asker, family: Family, way: Way, streamed: bool
) -> None:
    """The worker never says what it sampled then; the frontend's ids and log-probabilities are all."""
    (index,) = family.encode(" return")
    reply = await ask(way, max_tokens=8, stop=("tur",), extra=forced(index), streamed=streamed)
    assert "engine_data" not in reply.raw["nvext"]
    assert reply.completion_ids == (index,)
    assert len(reply.logprobs or ()) == 1
    assert (reply.finish_reason, reply.text, reply.stop_reason) == ("stop", " re", "tur")
    assert reply.message is not None
    assert reply.message["content"] == " re"


@BOTH
@EACH
async def test_a_stop_id_is_sampled(ask: Asker, family: Family, way: Way, streamed: bool) -> None:
    (index,) = family.encode(" return")
    reply = await ask(way, max_tokens=8, stop_ids=(index,), extra=forced(index), streamed=streamed)
    assert (reply.completion_ids, reply.stop_reason) == ((index,), index)
    assert (reply.finish_reason, reply.text, reply.notices) == ("stop", "", ())


@BOTH
@EACH
async def test_a_call_is_read_as_it_was_sampled(ask: Asker, way: Way, streamed: bool) -> None:
    reply = await ask(way, TOOLED, max_tokens=99, extra={"guided_regex": CALL_PATTERN}, streamed=streamed)
    said = ask.family.decode(reply.completion_ids[:-1])
    assert said == CALL
    assert reply.message is not None
    calls = reply.message.get("tool_calls") or []
    spelled = ask.family.tokenizer.token_to_id("<tool_call>") not in reply.completion_ids
    if way == "completions" and spelled:
        assert (calls, reply.finish_reason) == ([], "stop"), "letters are no tag, so this is text"
        assert reply.message["content"] == CALL
        return
    (call,) = calls
    assert call["function"] == {"name": "get_weather", "arguments": '{"city":  "Paris"}'}
    assert (reply.finish_reason, reply.notices) == ("tool_calls", ())


@BOTH
@pytest.mark.parametrize("limit", [25, 99])
async def test_dynamo_trap_07_what_the_parser_drops_is_read_from_the_ids(
    ask: Asker, limit: int, streamed: bool
) -> None:
    """A call that is cut short, and one that is none."""
    pattern = CALL_PATTERN if limit == 25 else "So: <tool_call>\nno call\n</tool_call>"
    extra = {"guided_regex": pattern}
    asked: dict[str, Any] = {"max_tokens": limit, "extra": extra, "streamed": streamed}
    bare = await ask("chat", TOOLED, folder=False, **asked)
    assert bare.notices == (DynamoNotice.INCOMPLETE,)
    reply = await ask("chat", TOOLED, **asked)
    assert reply.completion_ids == bare.completion_ids
    ids = reply.completion_ids if limit == 25 else reply.completion_ids[:-1]
    assert reply.message is not None
    assert reply.message["content"] == ask.family.decode(ids)
    assert reply.notices == (DynamoNotice.READ_FROM_IDS,)
    assert reply.finish_reason == ("length" if limit == 25 else "stop")


async def test_dynamo_trap_07_a_grammar_may_end_the_request(
    ask: Asker, special: Callable[[str], int]
) -> None:
    """Where tools are offered, the worker holds what follows a call's opening to a grammar."""
    opened = special("<tool_call>")
    for streamed in (False, True):
        with pytest.raises(ServerError):
            await ask("chat", TOOLED, max_tokens=6, extra=forced(opened), streamed=streamed)
    reply = await ask("completions", TOOLED, max_tokens=6, extra=forced(opened))
    assert reply.completion_ids == (opened,) * 6


@BOTH
async def test_half_a_character_loses_no_id(ask: Asker, family: Family, streamed: bool) -> None:
    first = family.encode("🙂")[0]
    for way in WAYS:
        reply = await ask(way, max_tokens=3, extra=forced(first), streamed=streamed)
        assert reply.completion_ids == (first,) * 3
        assert reply.notices == ()


async def test_dynamo_trap_04_other_ways_to_steer_work(ask: Asker) -> None:
    usual = (await ask("chat", max_tokens=1, temperature=0.0)).completion_ids
    without = await ask("chat", max_tokens=1, temperature=0.0, extra={"bad_words_token_ids": [list(usual)]})
    assert without.completion_ids != usual


async def test_dynamo_trap_05_the_worker_says_the_same_of_log_probabilities(ask: Asker) -> None:
    reply = await ask("chat", max_tokens=50, extra={"ignore_eos": True, "logprobs": 2})
    exact = reply.raw["nvext"]["engine_data"]["completion_logprobs"]
    assert len(exact) == 50
    assert reply.logprobs == pytest.approx(exact, abs=1e-5)


async def test_dynamo_trap_10_what_the_frontend_refuses_is_a_refusal(dynamo_server: Deployment) -> None:
    async with Dynamo(dynamo_server.base_url) as engine:
        with pytest.raises(RequestError, match="400"):
            await engine.from_ids([1, 3072], Sampling(max_tokens=1))
        assert (await engine.from_ids([1], Sampling(max_tokens=1))).prompt_ids == (1,)


async def test_the_context_is_kept(dynamo_server: Deployment) -> None:
    async with Dynamo(dynamo_server.base_url) as engine:
        assert (await engine.limits()).max_model_len == CONTEXT
        long = [{"role": "user", "content": "word " * 9000}]
        with pytest.raises(OverlongError, match=f"there is room for {CONTEXT}"):
            await engine.from_messages(long, PLAIN, Sampling(max_tokens=1))
        with pytest.raises(OverlongError, match="Nothing was sent"):
            await engine.from_ids([5] * CONTEXT, Sampling(max_tokens=1))
        reply = await engine.from_ids([5] * (CONTEXT - 3), Sampling(max_tokens=9, extra={"ignore_eos": True}))
        assert (len(reply.completion_ids), reply.finish_reason) == (3, "length")


@BOTH
async def test_dynamo_trap_09_giving_up_stops_the_engine(dynamo_server: Deployment, streamed: bool) -> None:
    began = anyio.Event()

    async def watch(_: Delta) -> None:
        began.set()

    async def sample(engine: Dynamo) -> None:
        long = Sampling(max_tokens=8000, extra={"ignore_eos": True})
        await engine.from_ids([5, 6], long, watch=watch if streamed else None)

    async with Dynamo(dynamo_server.base_url) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(sample, engine)
        with anyio.fail_after(20):
            await (began.wait() if streamed else _running(dynamo_server, 1))
        assert await _count(dynamo_server) == 1
        tasks.cancel_scope.cancel()
    with anyio.fail_after(10):
        await _running(dynamo_server, 0)


async def _running(server: Deployment, count: int) -> None:
    """Wait until so many requests run at the worker."""
    while await _count(server) != count:  # noqa: ASYNC110  # another process cannot set an event of ours
        await anyio.sleep(0.1)


async def _count(server: Deployment) -> int:
    """Return how many requests the worker says it runs."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"{server.system_url}/metrics", timeout=20)).text
    lines = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running")]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


async def test_dynamo_trap_13_seeds_repeat_and_ids_have_no_other_spelling(ask: Asker, family: Family) -> None:
    alone = await ask("chat", max_tokens=20)
    together: list[Reply] = []

    async def sample(seed: int) -> None:
        together.append(await ask("completions", max_tokens=20, seed=seed))

    async with anyio.create_task_group() as tasks:
        for seed in range(1, 7):
            tasks.start_soon(sample, seed)
    assert alone.completion_ids in {reply.completion_ids for reply in together}
    respelled = [family.encode(family.decode(reply.completion_ids)) for reply in together]
    assert any(list(reply.completion_ids) != ids for reply, ids in zip(together, respelled, strict=True))


@pytest.mark.parametrize("route", ["chat", "completions"])
async def test_sixty_turns_keep_every_sampled_id(
    dynamo_server: Deployment, family: Family, route: Any
) -> None:
    async with Dynamo(dynamo_server.base_url, family=family, route=route) as engine:
        conversation = Conversation(
            engine=engine,
            rendering=Rendering(tools=TERSE.tools),
            sampling=Sampling(max_tokens=8, temperature=1.0, seed=5),
            policy=Policy(odd_stop=OddStop.KEEP),
        )
        run = Rollout(conversation, TERSE, TURNS)
        async for _ in run.run():
            pass
    summary, steps = run.summary(), list(run.conversation.trajectory)
    assert summary.whole
    assert (len(steps), summary.routes["TITO"]) == (TURNS, TURNS - 1)
    assert summary.drift_ids
    for before, after in pairwise(steps):
        assert after.prompt_ids.tolist()[: len(before.ids)] == before.ids.tolist()
