"""A renderer of this process, asked from asynchronous code: it runs in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio
import attrs

from tito_core import Message
from tito_io.families.family import Bound


@attrs.frozen
class Threaded:
    """A family's template and vocabulary, as an `AsyncTokenizeFn` that can cut text."""

    bound: Bound

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the template rejects them."""
        asked = partial(self.bound, messages, add_generation_prompt=add_generation_prompt)
        return await anyio.to_thread.run_sync(asked)

    async def since(
        self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids from `text` on; see `tito_core.Ask`."""
        asked = partial(self.bound.since, messages, text, add_generation_prompt=add_generation_prompt)
        return await anyio.to_thread.run_sync(asked)
