"""Conversations at a real engine, by ids and by messages: what of each prompt it had in its prefix cache.

Every conversation has a salt of its own, so that none finds what another left behind.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import httpx2

from benchmarks.history import Plain, texts
from tito_core import Ids, Trajectory
from tito_io.client.driver import AsyncTokenizeFn, InThread
from tito_io.client.token_client import TokenClient
from tito_io.engines.protocol import Delta, Rendering, Reply, Sampling
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

BLOCK = re.compile(r'vllm:cache_config_info\{[^}]*block_size="(\d+)"')
CUES = 8
"""Different questions."""


@attrs.frozen
class Shape:
    """How a conversation goes on."""

    turns: int
    words: int
    """In each question."""
    sampled: int
    """Ids of each answer: the model, which is random, is not asked where to stop."""

    def sampling(self, salt: str, turn: int) -> Sampling:
        """Return how a turn is sampled."""
        extra = {"cache_salt": salt, "ignore_eos": True}
        return Sampling(max_tokens=self.sampled, temperature=1.0, seed=turn, extra=extra)


@attrs.frozen
class Seen:
    """One turn, as the engine counted it."""

    prompt: int
    """Ids."""
    held: int
    """Ids in whole blocks of the turn before, prompt and answer: what the engine had of the conversation."""
    shared: int
    """Ids in whole blocks that the prompt has in common with a turn before: what could come of the cache."""
    cached: int
    """Ids that came of the cache, as the engine says."""
    first: float
    """Seconds from the question to the first sampled id."""


class Way(Protocol):
    """A way to take a turn."""

    async def turn(self, messages: list[Plain], sampling: Sampling, first: First) -> Reply:
        """Take the turn after messages."""


@attrs.define
class First:
    """When the first id of a turn came."""

    began: float = attrs.field(factory=time.perf_counter)
    seconds: float | None = None

    async def watch(self, delta: Delta) -> None:
        """Look at what came."""
        if self.seconds is None and delta.ids:
            self.seconds = time.perf_counter() - self.began


@attrs.define
class Tito:
    """By ids, but for the first turn; the model's folder renders what is new, and the engine only samples."""

    engine: VLLM
    family: Family
    client: TokenClient = attrs.field(init=False)
    trajectory: Trajectory = attrs.field(factory=Trajectory)

    @client.default
    def _client(self) -> TokenClient:
        return TokenClient(self.engine, renderer=self._bound)

    def _bound(self, rendering: Rendering) -> AsyncTokenizeFn:
        return InThread(self.family.tokenize_fn(tools=rendering.tools or None, **rendering.template_args))

    async def turn(self, messages: list[Plain], sampling: Sampling, first: First) -> Reply:
        """Take the turn after messages, whose ids are those of the turns before and what is new."""
        asked: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        asked |= {"seed": sampling.seed, "extra_body": dict(sampling.extra)}
        taken = await self.client.turn(self.trajectory, messages, sampling=asked, watch=first.watch)
        self.trajectory = self.trajectory.append(taken.step)
        return taken.turn.reply


@attrs.frozen
class Mito:
    """By messages, which the engine renders and tokenizes again each time."""

    engine: VLLM

    async def turn(self, messages: list[Plain], sampling: Sampling, first: First) -> Reply:
        """Take the turn after messages."""
        return await self.engine.from_messages(messages, Rendering(), sampling, watch=first.watch)


async def block_size(base_url: str) -> int:
    """Return how many ids a block of the engine's cache has."""
    async with httpx2.AsyncClient() as client:
        found = BLOCK.search((await client.get(f"{base_url}/metrics")).text)
    if found is None:
        raise RuntimeError(f"{base_url}/metrics does not say how large the cache's blocks are")
    return int(found[1])


async def talk(way: Way, shape: Shape, block: int, salt: str, seed: int) -> list[Seen]:
    """Hold a conversation; return its turns."""
    dice = random.Random(seed)  # noqa: S311  # questions to be measured with, no secret
    cues, found, before = texts(shape.words, seed)[:CUES], list[Seen](), list[list[int]]()
    messages: list[Plain] = []
    for turn in range(shape.turns):
        messages.append({"role": "user", "content": dice.choice(cues)})
        first = First()
        reply = await way.turn([*messages], shape.sampling(salt, turn), first)
        found.append(seen(reply, before, block, first.seconds))
        before.append([*reply.prompt_ids, *reply.completion_ids])
        messages.append(dict(reply.message or {"role": "assistant", "content": reply.text}))
    return found


def seen(reply: Reply, before: Sequence[Sequence[int]], block: int, first: float | None) -> Seen:
    """Return what a turn came to.

    Of a turn's ids the last was sampled and never computed with, and of a prompt the last is computed anew.
    """
    if reply.usage.cached_tokens is None or first is None:
        raise RuntimeError("the engine tells nothing of its cache, or streamed no id")
    prompt = Ids.of(reply.prompt_ids).tolist()
    most = len(prompt) - 1
    shared = max((common(prompt, one[:-1]) for one in before), default=0)
    held = len(before[-1]) - 1 if before else 0
    return Seen(
        prompt=len(prompt),
        held=held // block * block,
        shared=min(shared, most) // block * block,
        cached=reply.usage.cached_tokens,
        first=first,
    )


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning.

    >>> common([1, 2, 3], [1, 2, 4])
    2
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
