"""Run conversations at a real engine by ids or by messages, and count the cached ids of each prompt.

Every conversation has a cache salt of its own, so that it cannot reuse the blocks of another one.
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
from tito_io.client.driver import rendered_by
from tito_io.client.token_client import TokenClient
from tito_io.engines.protocol import Delta, Rendering, Reply, Sampling
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

BLOCK = re.compile(r'vllm:cache_config_info\{[^}]*block_size="(\d+)"')
QUESTIONS = 8
"""How many different questions there are."""


@attrs.frozen
class Shape:
    """Size of a conversation.

    Attributes:
        turns: Turns of the conversation.
        words: Words of each question.
        sampled: Sampled ids of each answer. The random model's stop token is ignored.
    """

    turns: int
    words: int
    sampled: int

    def sampling(self, salt: str, turn: int) -> Sampling:
        """Return the sampling arguments of a turn."""
        extra = {"cache_salt": salt, "ignore_eos": True}
        return Sampling(max_tokens=self.sampled, temperature=1.0, seed=turn, extra=extra)


@attrs.frozen
class TurnCounts:
    """Ids of one turn's prompt that were cached, and that could have been.

    Attributes:
        prompt: Ids of the prompt.
        available: Ids in whole blocks of the turn before, prompt and answer.
        shared: Ids in whole blocks that the prompt has in common with any turn before.
        cached: Cached ids as the engine reports them.
        first: Seconds from the request to the first sampled id.
    """

    prompt: int
    available: int
    shared: int
    cached: int
    first: float


class Way(Protocol):
    """A way to take a turn: by ids or by messages."""

    async def turn(self, messages: list[Plain], sampling: Sampling, first: First) -> Reply:
        """Take the turn after messages."""


@attrs.define
class First:
    """Stopwatch for the first sampled id of a turn.

    Attributes:
        began: Clock at the start.
        seconds: Seconds until the first id; None before it arrives.
    """

    began: float = attrs.field(factory=time.perf_counter)
    seconds: float | None = None

    async def watch(self, delta: Delta) -> None:
        """Stop the watch at the first delta with ids."""
        if self.seconds is None and delta.ids:
            self.seconds = time.perf_counter() - self.began


@attrs.define
class Tito:
    """Take turns by ids. The model folder renders the new messages; the first turn is sent as messages."""

    engine: VLLM
    family: Family
    client: TokenClient = attrs.field(init=False)
    trajectory: Trajectory = attrs.field(factory=Trajectory)

    @client.default
    def _client(self) -> TokenClient:
        return TokenClient(self.engine, renderer=rendered_by(self.family))

    async def turn(self, messages: list[Plain], sampling: Sampling, first: First) -> Reply:
        """Take the turn after `messages`; its prompt ids extend those of an earlier turn."""
        arguments: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        arguments |= {"seed": sampling.seed, "extra_body": dict(sampling.extra)}
        taken = await self.client.turn(self.trajectory, messages, sampling=arguments, watch=first.watch)
        self.trajectory = self.trajectory.append(taken.step)
        return taken.turn.reply


@attrs.frozen
class Mito:
    """Take turns by messages, which the engine renders and tokenizes again each time."""

    engine: VLLM

    async def turn(self, messages: list[Plain], sampling: Sampling, first: First) -> Reply:
        """Take the turn after messages."""
        return await self.engine.from_messages(messages, Rendering(), sampling, watch=first.watch)


async def block_size(base_url: str) -> int:
    """Return how many ids a block of the engine's cache has, read from its metrics."""
    async with httpx2.AsyncClient() as client:
        match = BLOCK.search((await client.get(f"{base_url}/metrics")).text)
    if match is None:
        raise RuntimeError(
            f"{base_url}/metrics has no vllm:cache_config_info with block_size; vLLM is expected"
        )
    return int(match[1])


async def converse(way: Way, shape: Shape, block: int, salt: str, seed: int) -> list[TurnCounts]:
    """Run a conversation; return the counts of its turns."""
    rng = random.Random(seed)  # noqa: S311  # questions to be measured with, no secret
    questions, counts, before = texts(shape.words, seed)[:QUESTIONS], list[TurnCounts](), list[list[int]]()
    messages: list[Plain] = []
    for turn in range(shape.turns):
        messages.append({"role": "user", "content": rng.choice(questions)})
        first = First()
        reply = await way.turn([*messages], shape.sampling(salt, turn), first)
        counts.append(turn_counts(reply, before, block, first.seconds))
        before.append([*reply.prompt_ids, *reply.completion_ids])
        messages.append(dict(reply.message or {"role": "assistant", "content": reply.text}))
    return counts


def turn_counts(reply: Reply, before: Sequence[Sequence[int]], block: int, first: float | None) -> TurnCounts:
    """Return the counts of a turn; `before` has the ids of the turns before.

    The last sampled id of a turn was never an input, so it is in no block. The last id of a prompt is always
    computed again.
    """
    if reply.usage.cached_tokens is None or first is None:
        raise RuntimeError("the engine reports no cached_tokens, or streamed no id")
    prompt = Ids.of(reply.prompt_ids).tolist()
    most = len(prompt) - 1
    shared = max((common(prompt, one[:-1]) for one in before), default=0)
    available = len(before[-1]) - 1 if before else 0
    return TurnCounts(
        prompt=len(prompt),
        available=available // block * block,
        shared=min(shared, most) // block * block,
        cached=reply.usage.cached_tokens,
        first=first,
    )


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix.

    >>> common([1, 2, 3], [1, 2, 4])
    2
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
