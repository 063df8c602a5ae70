"""One conversation with an engine, which keeps the ids of every turn."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_core import Message, Trajectory
from tito_io.engines.protocol import Rendering, SampleRequest, Sampling, Watch

from .certificates import KnownRendering
from .driver import AsyncTokenizeFn
from .turn import ClientTurn
from .turn_sampler import TurnSampler, check_branches


@attrs.define
class Conversation(TurnSampler):
    """Samples the turns of one conversation and keeps the ids of every turn.

    A call that fails changes nothing: the trajectory holds the turns that were sampled before. How turns are
    sampled, those attributes of `TurnSampler` say.

    Attributes:
        rendering: Tools and arguments of the chat template, the same for every turn.
        sampling: How to sample, the same for every turn.
        trajectory: The steps so far.
        known: What is known of the template. Cases that it lacks are certified when they come, once each.
    """

    rendering: Rendering = attrs.field(factory=Rendering, kw_only=True)
    sampling: Sampling = attrs.field(factory=Sampling, kw_only=True)
    trajectory: Trajectory = attrs.field(factory=Trajectory, kw_only=True)
    known: KnownRendering = attrs.field(factory=KnownRendering, kw_only=True)

    async def turn(self, prompt: Sequence[Message], *, watch: Watch | None = None) -> ClientTurn:
        """Sample the turn after `prompt` and append it to the trajectory.

        Args:
            prompt: The whole conversation so far.
            watch: Called with every delta of the reply as it comes.

        Raises:
            UnsupportedError: A text spells an image's placeholder, and the engine would never answer messages
                with it.
            EngineError: As the engine raises it. The turn is not asked for again by another route, because
                the engine may have sampled it already.
        """
        return (await self._kept(prompt, self.sampling, watch))[0]

    async def turns(
        self, prompt: Sequence[Message], n: int, *, watch: Watch | None = None
    ) -> tuple[ClientTurn, ...]:
        """Sample `n` turns after `prompt`; each is a step of its own in the trajectory, which branches there.

        The prompt, and the bytes of its images, go to the engine once where it samples several turns a
        request. Else a first request fills its prefix cache and the others follow (notice `group-split`). All
        turns have the same prompt ids. The next prompt continues the turn whose message it repeats.

        Args:
            prompt: The whole conversation so far.
            n: How many turns to sample; it replaces `sampling.n`.
            watch: Called with every delta of every reply as it comes; `Delta.index` says of which.

        Raises:
            UnsupportedError: The engine keeps ids itself: its conversations have no branches.
            EngineError: As `turn` raises it.
        """
        check_branches(self.engine)
        return await self._kept(prompt, attrs.evolve(self.sampling, n=n), watch)

    async def _kept(
        self, prompt: Sequence[Message], sampling: Sampling, watch: Watch | None
    ) -> tuple[ClientTurn, ...]:
        request = SampleRequest(messages=prompt, rendering=self.rendering, sampling=sampling, watch=watch)
        turns = (await self.turn_after(self.trajectory, request, self.known)).group
        for one in turns:
            self.trajectory = self.trajectory.append(one.step)
        return turns

    async def close(self) -> tuple[int, ...]:
        """Return the ids that close a turn in the template."""
        return (await self.profile(self.rendering, self.known)).suffix

    @property
    def tokenize_fn(self) -> AsyncTokenizeFn:
        """The function that renders messages to ids."""
        return self.render(self.rendering, self.known)
