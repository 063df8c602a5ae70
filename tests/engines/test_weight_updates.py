"""Real engines that abort turns for a weight update: each id comes once, with the name of its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.engines.server import Server
from tito_core import Step, Trajectory
from tito_core.samples import Forest, make_rows
from tito_io.client.conversation import Conversation
from tito_io.client.token_client import TokenClient
from tito_io.engines.aborted_turns import OnAbort
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    Reply,
    SampleRequest,
    Sampling,
)
from tito_io.engines.scores import score
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.engines.wrapper import EngineWrapper
from tito_io.samples.forms.tito import call_of

pytestmark = pytest.mark.engine
ASKED = [{"role": "user", "content": "Count."}]
LENGTHS = (800, 2400, 7200)
"""How many ids a turn has. Where it ends before the server is paused, it is taken again with more."""
EARLY = 2
PARTS = 3
"""Of a turn that is interrupted twice."""
NAMES = frozenset({"ignore_eos", "min_new_tokens"})


def sampling(length: int) -> dict[str, Any]:
    return {"max_tokens": length, "extra_body": {"ignore_eos": True}, "temperature": 1.0}


class LateError(Exception):
    """A turn had ended before the server was paused, as happens where the machine is busy."""


@attrs.define
class Update(EngineWrapper):
    """Pauses a server in the middle of its first streams, renames its weights, and lets it go on.

    Attributes:
        base_url: The server.
        pause: The route that pauses it, and what is sent.
        resume: The route that lets it go on.
        times: How many of the next requests are interrupted, each after two ids.
    """

    base_url: str
    pause: tuple[str, Any]
    resume: str
    times: int = 2
    versions: int = 0
    ids: list[int] = attrs.field(factory=list)
    texts: list[str] = attrs.field(factory=list)

    def begin(self, times: int) -> None:
        """Begin anew with the next turn."""
        self.times, self.versions = times, 0
        self.ids.clear()
        self.texts.clear()

    async def watch(self, delta: Delta) -> None:
        self.ids += delta.ids
        self.texts.append(delta.text)

    async def sample(self, request: SampleRequest) -> Reply:
        return await super().sample(attrs.evolve(request, watch=self._interrupting(request.watch)))

    def _interrupting(self, watch: Any) -> Any:
        if watch is None or not self.times:
            return watch
        self.times -= 1
        received: list[int] = []

        async def interrupting(delta: Delta) -> None:
            early = len(received) < EARLY
            received.extend(delta.ids)
            await watch(delta)
            if early and len(received) >= EARLY:
                await self.update()

        return interrupting

    async def update(self) -> None:
        self.versions += 1
        path, body = self.pause
        renamed = {"new_version": f"v{self.versions}", "abort_all_requests": False}
        async with httpx2.AsyncClient(base_url=self.base_url, trust_env=False, timeout=60) as client:
            for route, sent in ((path, body), ("/update_weight_version", renamed), (self.resume, {})):
                (await client.post(route, json=sent)).raise_for_status()


def update_of(engine: VLLM | SGLang, server: Server) -> Update:
    """Return an engine that updates its server's weights by the server's own routes."""
    if engine.name == "vllm":
        return Update(engine, server.base_url, ("/pause?mode=abort", {}), "/resume")
    return Update(engine, server.base_url, ("/pause_generation", {"mode": "abort"}), "/continue_generation")


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_turns_go_on_after_a_weight_update(kind: str, request: pytest.FixtureRequest) -> None:
    """On each route: a turn of three parts; then a group, a stop string, and `raise`."""
    server: Server = request.getfixturevalue(f"{kind}_server")
    every: list[VLLM | SGLang] = (
        [VLLM(server.base_url, route="generate"), VLLM(server.base_url)]
        if kind == "vllm"
        else [SGLang(server.base_url)]
    )
    for engine in every:
        anyio.run(updated, engine, server)


async def updated(engine: VLLM | SGLang, server: Server) -> None:
    async with engine:
        for check in (one_turn, a_group, a_stop_string, given_up):
            await in_time(check, engine, server)


Check = Callable[[VLLM | SGLang, Update, int], Awaitable[None]]


async def in_time(check: Check, engine: VLLM | SGLang, server: Server) -> None:
    """Run a check with turns that are long enough for the server to be paused before their ends."""
    for length in LENGTHS:
        with suppress(LateError):
            return await check(engine, update_of(engine, server), length)
    pytest.fail(f"the server was not paused while it sampled {LENGTHS[-1]} ids")


async def begun(engine: VLLM | SGLang) -> tuple[list[Step], list[Any]]:
    """Return a first step, and a prompt that continues it by ids: SGLang's chats stream no ids."""
    first = await TokenClient(engine).turn([], ASKED, sampling={"max_tokens": 4})
    return [first.step], [*ASKED, first.message, {"role": "user", "content": "Go on."}]


async def one_turn(engine: VLLM | SGLang, update: Update, length: int) -> None:
    """Take a turn by messages, whose later parts go by ids, where messages stream ids; then one by ids."""
    client = TokenClient(update, on_abort="resume", sampling_names=NAMES)
    if engine.name == "vllm":
        first = await client.turn([], ASKED, sampling=sampling(length), watch=update.watch)
        await proven(engine, first.turn.reply, update, length)
        update.begin(2)
    else:
        first = await client.turn([], ASKED, sampling=sampling(length))
    prompt = [*ASKED, first.message, {"role": "user", "content": "Go on."}]
    second = await client.turn([first.step], prompt, sampling=sampling(length), watch=update.watch)
    await proven(engine, second.turn.reply, update, length)
    assert second.step.prompt_ids.starts_with(first.step.ids)
    calls = [
        call_of(one.turn, name, place) for place, (one, name) in enumerate([(first, "a"), (second, "b")])
    ]
    (row,) = make_rows(Forest.of(calls)).rows
    assert row.trained == 2 * length
    versions = [span.weights for span in row.ledger if span.weights is not None]
    assert versions == [run.version for call in calls for run in call.weight_versions]


async def proven(engine: VLLM | SGLang, reply: Reply, update: Update, length: int) -> None:
    """Each id came once; versions cover what the engine says; log-probabilities are those of one turn."""
    assert len(reply.completion_ids) == length == reply.usage.completion_tokens
    assert tuple(update.ids) == reply.completion_ids
    resumed = Counter(reply.notices)["turn-resumed"]
    if resumed < PARTS - 1:
        raise LateError
    assert (reply.finish_reason, resumed, len(reply.raw["parts"])) == ("length", PARTS - 1, PARTS)
    # A model of random weights samples its own end now and then. Deltas need not have its text.
    heard, text = (one.replace("<|endoftext|>", "") for one in ("".join(update.texts), reply.text))
    assert text.startswith(heard.rstrip("\ufffd"))
    named = [(run.start, run.stop) for run in reply.weight_versions]
    if named:  # chat and completions of vLLM 0.32 name none
        assert named[-1][1] == length
        assert all(before[1] == after[0] for before, after in pairwise(named))
        assert [run.version for run in reply.weight_versions][-2:] == ["v1", "v2"]
    assert bool(named) == (getattr(engine, "route", "") == "generate")
    # The weights are the same: what a fresh request says of each id is what its part said of it.
    again = await score(engine, [*reply.prompt_ids, *reply.completion_ids], len(reply.prompt_ids))
    told = [value or 0.0 for value in reply.logprobs or ()]
    assert max(abs(a - (b or 0.0)) for a, b in zip(told, again, strict=True)) < 1e-4


async def a_group(engine: VLLM | SGLang, update: Update, length: int) -> None:
    """Of three turns each is resumed by itself, and the rows train every sampled id once."""
    update.begin(1)
    steps, prompt = await begun(engine)
    asked = Sampling(max_tokens=length, temperature=1.0, extra={"ignore_eos": True})
    conversation = Conversation(update, sampling=asked, trajectory=Trajectory(steps), on_abort=OnAbort.RESUME)
    turns = await conversation.turns(prompt, 3, watch=update.watch)
    if not any("turn-resumed" in turn.reply.notices for turn in turns):
        raise LateError
    assert [len(turn.step.completion_ids) for turn in turns] == [length] * 3
    assert len({tuple(turn.step.completion_ids) for turn in turns}) == 3
    assert len({tuple(turn.step.prompt_ids) for turn in turns}) == 1
    assert len(update.ids) == 3 * length
    calls = [call_of(turn, f"turn-{place}", place) for place, turn in enumerate(turns)]
    rows = make_rows(Forest.of(calls)).rows
    assert [row.trained for row in rows] == [length] * 3
    for call in calls:
        if call.weight_versions:
            assert call.weight_versions[-1].stop == length


async def a_stop_string(engine: VLLM | SGLang, update: Update, length: int) -> None:
    """End a turn at a stop string, as without `on_abort`."""
    client = TokenClient(update, on_abort="resume", sampling_names=NAMES)
    given = {**sampling(length), "stop": ["e", "a", "t"]}
    update.begin(0)
    turn = await client.turn(*await begun(engine), sampling=given, watch=update.watch)
    reply = turn.turn.reply
    assert (reply.finish_reason, str(reply.stop_reason) in given["stop"]) == ("stop", True)
    assert str(reply.stop_reason) not in reply.text


async def given_up(engine: VLLM | SGLang, update: Update, length: int) -> None:
    """By default an abort is an error that holds what was sampled; `return` makes a turn of it."""
    update.begin(1)
    client = TokenClient(update, sampling_names=NAMES)
    steps, prompt = await begun(engine)
    partial: Reply | None = None
    try:
        await client.turn(steps, prompt, sampling=sampling(length), watch=update.watch)
        raise LateError
    except AbortedError as error:
        partial = error.partial
    assert partial is not None
    assert list(partial.completion_ids) == update.ids
    update.begin(1)
    client = TokenClient(update, on_abort="return", sampling_names=NAMES)
    turn = await client.turn(steps, prompt, sampling=sampling(length), watch=update.watch)
    if turn.turn.reply.finish_reason == "length":
        raise LateError
    assert (turn.turn.reply.finish_reason, turn.step.truncated) == ("abort", True)
    assert turn.step.completion_ids.tolist() == update.ids
