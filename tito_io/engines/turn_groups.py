"""Several turns after one prompt: in one request where the engine takes that, else in several.

In one request the prompt, and the bytes of its images, are sent and computed once. An engine that answers one
turn a request (`turns_per_request`) gets a first request alone, which fills its prefix cache, and the others
at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import attrs

from .protocol import EngineError, InvalidReplyError, Reply, SampleRequest, Usage, watch_with
from .wrapper import EngineWrapper

SPLIT = "group-split"
"""The notice that the turns of one prompt were sampled by several requests."""


@attrs.define
class TurnGroups(EngineWrapper):
    """Samples `Sampling.n` turns with any engine.

    A seed goes up by one from request to request, as from turn to turn in vLLM and llama.cpp. SGLang's seeds
    belong to positions: the turns of one request with a seed would all be the same, so they are split.

    Attributes:
        engine: The wrapped engine.
        name: Its name.
        keeps_ids: Whether it stores ids itself.
    """

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample turns after one prompt."""
        sampling = request.sampling
        repeated = self.seeds_by_position and sampling.seed is not None
        if sampling.n == 1 or (self.turns_per_request != 1 and not repeated):
            return await self.engine.sample(request)
        turns: list[Reply | None] = [None] * sampling.n
        failures: list[Exception] = []

        async def one(place: int) -> None:
            seed = None if sampling.seed is None else sampling.seed + place
            alone = attrs.evolve(sampling, n=1, seed=seed)
            watch = watch_with(request.watch, index=place)
            try:
                turns[place] = await self.engine.sample(attrs.evolve(request, sampling=alone, watch=watch))
            except Exception as error:  # noqa: BLE001  # raised below, when the other turns have ended
                failures.append(error)
                turns[place] = error.partial if isinstance(error, EngineError) else None

        await one(0)
        if not failures:
            async with anyio.create_task_group() as group:
                for place in range(1, sampling.n):
                    group.start_soon(one, place)
        found = [turn for turn in turns if turn is not None]
        if failures:
            if isinstance(failures[0], EngineError) and found:
                failures[0].partial = together(found)
            raise failures[0]
        return self._alike(together(found))

    def _alike(self, group: Reply) -> Reply:
        """Return a group; raises `InvalidReplyError`, with it in `partial`, where its prompts differ.

        A server renders messages for each request anew, and a template may write the time.
        """
        prompts = {tuple(turn.prompt_ids) for turn in (group, *group.siblings)}
        if len(prompts) > 1:
            error = InvalidReplyError(
                f"{self.name}: the turns of a group were sampled after {len(prompts)} different prompts",
                hint="they are in `partial`, each with its own prompt",
            )
            error.partial = group
            raise error
        return group


def together(turns: Sequence[Reply]) -> Reply:
    """Return turns of several requests as the reply of one; what was cached is that of the first request."""
    usage = Usage(
        prompt_tokens=turns[0].usage.prompt_tokens,
        completion_tokens=sum(len(turn.completion_ids) for turn in turns),
        cached_tokens=turns[0].usage.cached_tokens,
    )
    first, *others = (attrs.evolve(turn, usage=usage, notices=(*turn.notices, SPLIT)) for turn in turns)
    return attrs.evolve(first, siblings=tuple(others))
