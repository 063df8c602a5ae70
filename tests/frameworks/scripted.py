"""The embedded engine with a script: it samples given texts, in ids that no tokenizer gives for them.

What every integration into an agent SDK is tested with.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from itertools import pairwise
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tito_io.client import Route
from tito_io.embedded import TIDY, Sampler, family, vocabulary
from tito_io.embedded.app import engine_app
from tito_io.embedded.engine import EmbeddedEngine
from tito_io.embedded.generation import drifted
from tito_io.embedded.rng import Rng
from tito_io.embedded.vocabulary import END_OF_TURN
from tito_io.engines.protocol import (
    Delta,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    Watch,
)
from tito_io.engines.vllm import VLLM
from tito_io.engines.wrapper import EngineWrapper
from tito_io.integrations.model_calls import ModelCalls


def thought(text: str) -> str:
    """Return the reasoning of a turn, as the template writes it."""
    return f"<think>\n{text}\n</think>\n\n"


def call(name: str, **arguments: Any) -> str:
    """Return a tool call as a model samples it, spaced and escaped otherwise than the template would."""
    spaced = json.dumps(arguments, separators=(" ,", " : "))
    return f'<tool_call>\n{{"name":"{name}", "arguments":{spaced}}}\n</tool_call>'


@attrs.frozen
class Script(Sampler):
    """Samples the texts one after the other, whatever the prompt; each in split ids."""

    texts: list[str] = attrs.field(factory=list, kw_only=True)

    def ids(
        self, prompt: Sequence[int], *, seed: int | None = None, draw: int = 0, grammar: object = None
    ) -> Iterator[int]:
        """Yield the ids of the next text and its end; a script keeps to its grammar by itself."""
        assert draw == 0, (seed, draw)
        del grammar
        words = vocabulary()
        yield from drifted(words.encode(self.texts.pop(0)), Rng(len(prompt)), words)
        yield words.id(END_OF_TURN)


@attrs.define
class Watched(EngineWrapper):
    """Notes what an engine was asked and what it answered; it may fail, or never answer.

    Attributes:
        asked: How each prompt was sent, the prompt, its rendering and its sampling.
        replies: The answers.
        error: What to raise in place of an answer.
        hangs: Whether no answer comes.
        stalls: Whether nothing comes after the first delta of a turn by ids.
        waiting: Set when somebody waits for what does not come.
        cancelled: Set when such a request is cancelled.
    """

    error: Exception | None = None
    hangs: bool = False
    stalls: bool = False
    asked: list[tuple[str, Any, Rendering | None, Sampling]] = attrs.field(factory=list, init=False)
    replies: list[Reply] = attrs.field(factory=list, init=False)
    waiting: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    cancelled: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def samplings(self) -> list[Sampling]:
        """Return what was asked without the conversation's name for routers, which all turns must share."""
        names = {sampling.conversation for *_, sampling in self.asked}
        assert len(names) == 1, names
        assert None not in names
        return [attrs.evolve(sampling, conversation=None) for *_, sampling in self.asked]

    async def sample(self, request: SampleRequest) -> Reply:
        prompt = request.ids if request.messages is None else map(dict, request.messages)
        how = "ids" if request.messages is None else "messages"
        self.asked.append((how, list(prompt or ()), request.rendering, request.sampling))
        if self.error is not None:
            raise self.error
        if self.hangs:
            await self._wait()
        watched = attrs.evolve(request, watch=self._stalling(request.watch))
        self.replies.append(await super().sample(watched if self.stalls and how == "ids" else request))
        return self.replies[-1]

    def _stalling(self, watch: Watch | None) -> Watch:
        async def stall(delta: Delta) -> None:
            assert watch is not None
            await watch(delta)
            await self._wait()

        return stall

    async def _wait(self) -> None:
        self.waiting.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled.set()


def scripted(*texts: str, **options: Any) -> Watched:
    """Return an engine that samples these texts."""
    engine = EmbeddedEngine(family=family(), sampler=Script(0, TIDY, texts=list(texts)), **options)
    return Watched(VLLM("http://scripted", transport=httpx2.ASGITransport(engine_app(engine))))


def sampled(calls: ModelCalls) -> list[list[int]]:
    """Return the sampled ids of each call."""
    return [one.step.completion_ids.tolist() for one in calls.calls]


def trained(calls: ModelCalls) -> list[list[int]]:
    """Return the ids that each row trains."""
    return [
        [index for index, train in zip(row.ids, row.loss_mask, strict=True) if train]
        for row in calls.rows().rows
    ]


def went(calls: ModelCalls) -> dict[str, int]:
    """Return how many prompts went by which route."""
    return {route.name: count for route, count in calls.client.counts.routes.items()}


def assert_by_ids(calls: ModelCalls) -> None:
    """Assert that every prompt but the first begins with all ids before it, and goes as ids."""
    steps = [one.step for one in calls.calls]
    assert all(after.prompt_ids.starts_with(before.ids) for before, after in pairwise(steps))
    routes = calls.client.counts.routes
    assert (routes[Route.MITO], routes[Route.TITO]) == (1, len(steps) - 1)
    assert not calls.refused
    assert not calls.client.counts.refusals
    assert trained(calls) == [[index for ids in sampled(calls) for index in ids]]


def assert_aborts(engine: Watched, run: Coroutine[Any, Any, Any]) -> None:
    """Assert that cancelling a run while its turn is sampled aborts the turn."""

    async def cancel() -> None:
        running = asyncio.create_task(run)
        await engine.waiting.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await engine.cancelled.wait()

    asyncio.run(asyncio.wait_for(cancel(), 20))


def assert_drifted(calls: ModelCalls) -> None:
    """Assert that no turn has the ids that a tokenizer gives for its text, so that only ids keep them."""
    words = vocabulary()
    assert all(words.encode(words.decode(ids)) != ids for ids in sampled(calls))
