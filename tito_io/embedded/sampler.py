"""The sampler: a seeded source of random turns, not a language model.

The ids that it samples follow from the prompt's ids, its own seed and the request's seed. They depend on
nothing
else: not on the route, the time or earlier requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import field, frozen

from .reply import ReplyPlan, TextPiece, ids_of, plan_reply, read_prompt
from .rng import FaultRates, Rng, pack
from .vocabulary import Vocabulary, passage, vocabulary


@frozen
class Sampler:
    """Samples ids after a prompt: reasoning, text and tool calls with the faults that real turns have.

    Attributes:
        seed: Two samplers with the same seed sample the same.
        fault_rates: How often turns have each fault, such as ids that the tokenizer does not give.
    """

    seed: int = 0
    fault_rates: FaultRates = field(factory=FaultRates)

    def ids(
        self, prompt: Sequence[int], *, seed: int | None = None, draw: int = 0, must_call: str | None = None
    ) -> Iterator[int]:
        """Yield the ids of a turn, its stop token, and then more text without end.

        The caller stops: at a stop token, or at a limit. `prompt` are the prompt's ids, `seed` is the
        request's, `draw` numbers the choices of one request. `must_call` names the tool to call; `""` means
        any.
        """
        words, rng = vocabulary(), Rng(self.seed, "" if seed is None else seed, draw, pack(prompt))
        view = read_prompt(prompt, words)
        tools = [tool for tool in view.tools if must_call in ("", tool.name)]
        reply = plan_reply(view, rng, self.fault_rates, tools)
        # A turn drifts as a whole: a share of single ids would leave almost no turn canonical.
        drifts = rng.chance(self.fault_rates.drifts)
        yield from _planned(reply, rng, words, drifts=drifts)
        while True:
            more = ids_of([TextPiece(passage(rng, view.echoed) + " ")], words)
            yield from drifted(more, rng, words) if drifts else more


def _planned(reply: ReplyPlan, rng: Rng, words: Vocabulary, *, drifts: bool) -> Iterator[int]:
    ids = ids_of(reply.pieces, words)
    yield from drifted(ids, rng, words) if drifts else ids
    if reply.half:
        single = [byte for merged in words.spell_out(reply.half) for byte in words.bytes_of(merged)]
        yield from single[:-1]
    if reply.end is not None:
        yield words.id(reply.end)


def drifted(ids: Sequence[int], rng: Rng, words: Vocabulary) -> list[int]:
    """Return ids of the same text: some merged ids are split, at least one where there are any."""
    merged = [place for place, identifier in enumerate(ids) if identifier in words.halves]
    if not merged:
        return list(ids)
    apart = {place for place in merged if rng.chance(0.15)} or {rng.pick(merged)}
    result: list[int] = []
    for place, identifier in enumerate(ids):
        result += _split(identifier, rng, words) if place in apart else [identifier]
    return result


def _split(identifier: int, rng: Rng, words: Vocabulary) -> list[int]:
    """Undo the last merge of an id, and sometimes that of its halves."""
    parts: list[int] = []
    for half in words.halves[identifier]:
        again = half in words.halves and rng.chance(0.3)
        parts += _split(half, rng, words) if again else [half]
    return parts
