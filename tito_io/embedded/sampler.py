"""The sampler: prompt ids and a seed in, ids out, for ever.

It is no language model. What it says follows from the ids of the prompt, its own seed and the request's, and
from nothing else: not from the route, the time, or what was asked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import field, frozen

from .draws import FaultRates, Rng, pack
from .prompt_view import PromptView, Tool, read
from .reply import ReplyPlan, TextPiece, compose, ids_of
from .vocabulary import Vocabulary, passage, vocabulary


@frozen
class Sampler:
    """A seed and fault_rates; `ids` is a function of its arguments."""

    seed: int = 0
    fault_rates: FaultRates = field(factory=FaultRates)

    def dice(self, prompt: Sequence[int], seed: int | None, draw: int = 0) -> Rng:
        """Return the draws that belong to this prompt, this request's seed and its `draw`-th choice."""
        return Rng(self.seed, "" if seed is None else seed, draw, pack(prompt))

    def ids(
        self, prompt: Sequence[int], *, seed: int | None = None, draw: int = 0, must_call: str | None = None
    ) -> Iterator[int]:
        """Yield the ids of the reply, its end token, and then more words without end.

        Whoever asks stops: at an end token, at a limit. `must_call` names the tool to call; `""` means any.
        """
        words, dice = vocabulary(), self.dice(prompt, seed, draw)
        scene = read(prompt, words)
        reply = compose(scene, dice, self.fault_rates, _wanted(scene, must_call))
        drifts = dice.chance(self.fault_rates.drifts)
        yield from self._said(reply, dice, words, drifts=drifts)
        while True:
            more = ids_of([TextPiece(passage(dice, scene.heard) + " ")], words)
            yield from drifted(more, dice, words) if drifts else more

    def _said(self, reply: ReplyPlan, dice: Rng, words: Vocabulary, *, drifts: bool) -> Iterator[int]:
        """Yield the ids of the pieces, of half a character where there is one, and of the end."""
        ids = ids_of(reply.pieces, words)
        yield from drifted(ids, dice, words) if drifts else ids
        if reply.half:
            yield from _bytes(reply.half, words)[:-1]
        if reply.end is not None:
            yield words.id(reply.end)


def _wanted(scene: PromptView, must_call: str | None) -> list[Tool]:
    """Return the tools of which one must be called; none where nothing must or can be."""
    if must_call is None:
        return []
    return [tool for tool in scene.tools if must_call in ("", tool.name)]


def _bytes(character: str, words: Vocabulary) -> list[int]:
    return [byte for merged in words.spelled(character) for byte in words.bytes_of(merged)]


SHARE = 0.15
"""How many of the merged ids come apart, in a reply that drifts."""


def drifted(ids: Sequence[int], dice: Rng, words: Vocabulary) -> list[int]:
    """Return ids with the same text as `ids`, at least one of them split where any can be."""
    merged = [place for place, identifier in enumerate(ids) if identifier in words.halves]
    if not merged:
        return list(ids)
    apart = {place for place in merged if dice.chance(SHARE)} or {dice.pick(merged)}
    found: list[int] = []
    for place, identifier in enumerate(ids):
        found += _split(identifier, dice, words) if place in apart else [identifier]
    return found


def _split(identifier: int, dice: Rng, words: Vocabulary) -> list[int]:
    """Undo the last merge of an id, and of its halves now and then."""
    left, right = words.halves[identifier]
    return [part for half in (left, right) for part in _maybe(half, dice, words)]


def _maybe(identifier: int, dice: Rng, words: Vocabulary) -> list[int]:
    return (
        _split(identifier, dice, words) if identifier in words.halves and dice.chance(0.3) else [identifier]
    )
