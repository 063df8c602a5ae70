"""A rollout by the functions that verl's agent loops call, with its mask and log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs


@attrs.define
class Rollout:
    """What an agent loop holds of one trajectory.

    Attributes:
        builder: The Continuous Token builder.
        messages: The messages so far.
        ids: Prompt and response.
        tools: What the template gets as tools.
        images: The images of the first prompt.
        mask: Whether ids of the response were sampled.
        logprobs: The log-probabilities of the response.
        sampled: Every position that was sampled, with its id.
    """

    builder: Any
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    images: list[Any] | None = None
    ids: list[int] = attrs.field(init=False)
    mask: list[int] = attrs.field(factory=list)
    logprobs: list[float] = attrs.field(factory=list)
    sampled: list[tuple[int, int]] = attrs.field(factory=list)

    @ids.default
    def _first_prompt(self) -> list[int]:
        shown = {"images": self.images} if self.images else {}
        ids: list[int] = self.builder.build_initial_tokens(self.messages, tools=self.tools, **shown)
        return ids

    def sample(
        self, ids: Sequence[int], turn: dict[str, Any], logprobs: Sequence[float] | None = None
    ) -> None:
        """Append a turn."""
        self.sampled += [(len(self.ids) + at, one) for at, one in enumerate(ids)]
        merged = self.builder.merge_assistant_tokens(self.ids, list(ids))
        self._align(merged, assistant_logprobs=list(logprobs or [-1.0] * len(ids)))
        self.messages = [*self.messages, turn]

    def answer(self, *new: dict[str, Any]) -> Any:
        """Append messages that were not sampled; return verl's record of the merge."""
        updated = [*self.messages, *new]
        merged = self.builder.merge_context_tokens(self.messages, updated, self.ids, tools=self.tools)
        self._align(merged)
        self.messages = updated
        return merged

    def trained(self) -> list[tuple[int, int]]:
        """Return the positions that train, with their ids."""
        start = len(self.ids) - len(self.mask)
        return [(start + at, self.ids[start + at]) for at, on in enumerate(self.mask) if on]

    def _align(self, merged: Any, **more: Any) -> None:
        self.ids = merged.token_ids
        self.mask, self.logprobs = self.builder.align_response_metadata(
            merged, self.mask, self.logprobs, **more
        )
