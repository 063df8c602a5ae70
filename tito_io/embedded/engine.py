"""The engine behind the routes: a family to render with, a sampler, and the checks before sampling."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field, frozen

from tito_io.families.family import Family

from .folder import MAX_MODEL_LEN, MODEL
from .generation import Generation, SamplingSettings, generate
from .http import BadRequest, Body, bad, unknown_model
from .sampler import Sampler

BLOCK = 16
"""Ids in a block; only whole blocks are shared."""
BLOCKS = 65_536
"""How many are remembered, about a million ids; the oldest go first."""


class PrefixCache:
    """Blocks by the chain of blocks before them; it changes as prompts and replies come by."""

    def __init__(self) -> None:
        """Begin empty."""
        self._blocks: dict[int, None] = {}

    def cached(self, prompt: Sequence[int]) -> int:
        """Return how many ids at the beginning of `prompt` are known; the last id never is.

        >>> cache = PrefixCache()
        >>> cache.keep(range(40))
        >>> [cache.cached(ids) for ids in (range(40), range(33), range(32), [1] * 40)]
        [32, 32, 16, 0]
        """
        known = 0
        for block in _chain(prompt[: max(len(prompt) - 1, 0)]):
            if block not in self._blocks:
                break
            known += BLOCK
        return known

    def keep(self, ids: Sequence[int]) -> None:
        """Remember the blocks of a prompt and its reply."""
        for block in _chain(ids):
            self._blocks.pop(block, None)
            self._blocks[block] = None
        while len(self._blocks) > BLOCKS:
            del self._blocks[next(iter(self._blocks))]


def _chain(ids: Sequence[int]) -> list[int]:
    """Return a hash for every whole block, each of them depending on all before it."""
    found: list[int] = []
    state = 0
    for start in range(0, len(ids) - BLOCK + 1, BLOCK):
        state = hash((state, *ids[start : start + BLOCK]))
        found.append(state)
    return found


@frozen(eq=False, kw_only=True)
class EmbeddedEngine:
    """What one application answers with. Only `cache` changes, and no reply depends on it."""

    family: Family
    sampler: Sampler
    model: str = MODEL
    max_model_len: int = MAX_MODEL_LEN
    max_new_tokens: int | None = None
    """A limit on every reply, whatever a request asks for; None for none."""
    cache: PrefixCache = field(factory=PrefixCache)

    def check_model(self, body: Body) -> None:
        """Refuse a model of another name; a body may leave it out."""
        asked = body.text("model")
        if asked not in (None, "", self.model):
            raise unknown_model(str(asked), self.model)

    def check_ids(self, ids: Sequence[int], param: str | None = None) -> None:
        """Refuse an id that the vocabulary does not have."""
        largest = max(ids, default=0)
        if largest >= self.family.vocab_size:
            text = f"Token id {largest} is out of vocabulary"
            raise bad(text, param) if param else BadRequest(text)

    def room(self, prompt: Sequence[int], wanted: int | None, *, from_text: bool) -> int:
        """Return how many ids the reply may have: `wanted`, or fewer where the context has less room.

        A prompt that fills the context exactly leaves 0, which the check of `max_tokens` then refuses.
        """
        if len(prompt) > self.max_model_len:
            raise self._too_long(len(prompt), from_text=from_text)
        limits = (self.max_model_len - len(prompt), wanted, self.max_new_tokens)
        return min(limit for limit in limits if limit is not None)

    def run(self, prompt: Sequence[int], sampling: SamplingSettings, count: int = 1) -> PromptReplies:
        """Sample `count` replies."""
        cached = self.cache.cached(prompt)
        replies = [generate(self.sampler, prompt, sampling, draw) for draw in range(count)]
        for reply in replies:
            self.cache.keep([*prompt, *reply.ids[:-1]])
        return PromptReplies(replies, cached)

    def _too_long(self, length: int, *, from_text: bool) -> BadRequest:
        """Refuse a prompt; of a text, the engine counts no more ids than it needs to know that."""
        found = self.max_model_len + 1 if from_text else length
        counted = f"{'at least ' if found == self.max_model_len + 1 else ''}{found}"
        text = (
            f"This model's maximum context length is {self.max_model_len} tokens. However, your prompt "
            f"contains {counted} input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt."
        )
        return bad(text, "input_tokens", found)


@frozen
class PromptReplies:
    """The replies to one prompt, and how much of the prompt was known before."""

    replies: list[Generation]
    cached: int
