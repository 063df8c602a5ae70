"""An engine that is sent no ids that are known not to fit."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from .protocol import OverlongError, Rendering, Reply, Sampling, Watch
from .wrapper import Through


@attrs.define
class Bounded(Through):
    """Refuses what does not fit before it is sent."""

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after ids; raises `OverlongError` where they leave no room for one."""
        room = (await self.engine.limits()).max_model_len
        if room is not None and len(ids) >= room:
            raise OverlongError(
                f"the prompt has {len(ids)} ids, and the model takes {room} with its answer; shorten it. "
                "Nothing was sent"
            )
        return await super().from_ids(ids, sampling, rendering, watch=watch)
