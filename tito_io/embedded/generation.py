"""Generate a finished reply: sample ids, stop as an engine does, and decode the text.

The sampler is a seeded source of random turns, not a language model. The ids that it samples follow from the
prompt's ids, its own seed and the request's seed. They depend on nothing else: not on the route, the time or
earlier requests. The ids of a reply hold its stop token; the text does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from attrs import define, evolve, field, frozen
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from .logprobs import REACH, SampledId, logprob
from .reply import Position, TextPiece, ids_of, plan_reply, read_prompt
from .rng import FaultRates, Rng, pack
from .structured import Draw, Format
from .vocabulary import END_OF_TEXT, END_OF_TURN, Vocabulary, passage, vocabulary


@frozen
class Sampler:
    """Samples ids after a prompt: reasoning, text and tool calls with the faults that real turns have.

    Attributes:
        seed: Two samplers with the same seed sample the same.
        fault_rates: How often turns have each fault, such as ids that the tokenizer does not give.
        reasoning_ended: Whether turns have no reasoning, so that a grammar is that of the whole turn.
    """

    seed: int = 0
    fault_rates: FaultRates = field(factory=FaultRates)
    reasoning_ended: bool = False

    def ids(
        self, prompt: Sequence[int], *, seed: int | None = None, draw: int = 0, grammar: Format | None = None
    ) -> Iterator[int]:
        """Yield the ids of a turn, its stop token, and then more text without end.

        The caller stops: at a stop token, or at a limit. `prompt` are the prompt's ids, `seed` is the
        request's, `draw` numbers the choices of one request. `grammar` is what the text after the reasoning
        keeps to.
        """
        words, rng = vocabulary(), Rng(self.seed, "" if seed is None else seed, draw, pack(prompt))
        view = read_prompt(prompt, words)
        if self.reasoning_ended:
            view = evolve(view, position=Position.ANSWER)
        plain = self.fault_rates.loose_whitespace == 0
        answer = None if grammar is None else Draw(rng, plain=plain).pieces(grammar)
        reply = plan_reply(view, rng, self.fault_rates, answer)
        # A turn drifts as a whole: a share of single ids would leave almost no turn canonical.
        drifts = rng.chance(self.fault_rates.drifts)
        planned = ids_of(reply.pieces, words)
        yield from drifted(planned, rng, words) if drifts else planned
        if reply.half:
            single = [byte for merged in words.spell_out(reply.half) for byte in words.bytes_of(merged)]
            yield from single[:-1]
        if reply.end is not None:
            yield words.id(reply.end)
        while True:
            more = ids_of([TextPiece(passage(rng, view.echoed) + " ")], words)
            yield from drifted(more, rng, words) if drifts else more


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


@frozen(kw_only=True)
class SamplingSettings:
    """The settings that decide the ids and the text of one reply.

    Settings that only shape a distribution, such as `top_p`, are not here: the sampler has no distribution.

    Attributes:
        max_tokens: At most this many ids, the stop token included.
        min_tokens: No stop token before this many ids.
        seed: The request's seed; None for none.
        stop: Strings that end the reply. They are cut from its text, but not from its ids.
        stop_token_ids: Ids that end the reply, beside the family's own stop tokens.
        ignore_eos: Whether the family's stop tokens are ids like any other.
        keep_stop: Whether the text keeps the string or the token that ended the reply.
        skip_special: Whether special tokens are left out of the text.
        grammar: What the text after the reasoning keeps to, as a node of a structural tag; None for nothing.
        reasoning_ended: Whether the reply has no reasoning, so that a grammar is that of all of it.
    """

    max_tokens: int
    min_tokens: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    keep_stop: bool = False
    skip_special: bool = True
    grammar: Format | None = None
    reasoning_ended: bool = False


@define
class Generation:
    """A finished reply.

    Attributes:
        prompt: Token ids of the prompt.
        steps: The sampled ids in order, the stop token included, each with its log-probability and text.
        finish_reason: `stop`, or `length` where a limit ended the reply.
        stop_reason: The id or string that ended the reply; None for the end-of-turn token and for a limit.
        sizes: How many ids each event of a stream carries.
    """

    prompt: tuple[int, ...]
    steps: tuple[SampledId, ...]
    finish_reason: str
    stop_reason: int | str | None
    sizes: tuple[int, ...] = field(default=())

    @cached_property
    def ids(self) -> list[int]:
        """The sampled ids, the stop token included."""
        return [step.id for step in self.steps]

    @cached_property
    def text(self) -> str:
        """The text without the stop token."""
        return "".join(step.text for step in self.steps)

    def events(self) -> Iterator[tuple[SampledId, ...]]:
        """Yield the steps in the groups that a stream sends."""
        start = 0
        for size in self.sizes:
            yield self.steps[start : start + size]
            start += size


def generate(
    sampler: Sampler, prompt: Sequence[int], sampling: SamplingSettings, draw: int = 0
) -> Generation:
    """Sample one reply to the ids of `prompt`.

    Args:
        sampler: Where the ids come from.
        prompt: Token ids.
        sampling: When the reply ends, and what its text leaves out.
        draw: The number of this reply among the choices of one request, from 0 on.

    >>> reply = generate(Sampler(), vocabulary().encode("Hello"), SamplingSettings(max_tokens=3))
    >>> len(reply.ids), reply.finish_reason
    (3, 'length')
    """
    words = vocabulary()
    run = _Run(words, sampling, TextWriter(words.tokenizer, prompt, sampling), list(prompt[-REACH:]))
    if sampling.reasoning_ended:
        sampler = evolve(sampler, reasoning_ended=True)
    for identifier in sampler.ids(prompt, seed=sampling.seed, draw=draw, grammar=sampling.grammar):
        if run.take(identifier):
            break
    rng = Rng("events", sampler.seed, *run.tail)
    sizes = _event_sizes(len(run.steps), rng, sampler.fault_rates.grouped_ids)
    return Generation(tuple(prompt), tuple(run.steps), run.finish_reason, run.stop_reason, sizes)


def _event_sizes(count: int, rng: Rng, grouped: float) -> tuple[int, ...]:
    """Split `count` ids into events: most of one id, a share of them of two to four."""
    sizes: list[int] = []
    while count > 0:
        size = min(rng.between(2, 4) if rng.chance(grouped) else 1, count)
        sizes.append(size)
        count -= size
    return tuple(sizes)


@define
class _Run:
    """One reply while it is sampled."""

    words: Vocabulary
    sampling: SamplingSettings
    writer: TextWriter
    tail: list[int]
    """The last `REACH` ids."""
    steps: list[SampledId] = field(factory=list)
    finish_reason: str = "length"
    stop_reason: int | str | None = None

    def take(self, identifier: int) -> bool:
        """Add one id; return whether the reply is over."""
        usual, other = self.words.id(END_OF_TURN), self.words.id(END_OF_TEXT)
        own = () if self.sampling.ignore_eos else (usual, other)
        ends = identifier in own or identifier in self.sampling.stop_token_ids
        # An engine forbids stop tokens until `min_tokens`; here the sampler's is dropped, and it goes on.
        if ends and len(self.steps) < self.sampling.min_tokens:
            return False
        stop = None if ends and not self.sampling.keep_stop else self.writer.write(identifier)
        if ends or stop is not None:
            self.finish_reason, self.stop_reason = "stop", identifier if ends else stop
        # vLLM names every stop token but the model's own: a turn that ends with that one has no stop reason.
        if own and identifier == usual:
            self.stop_reason = None
        over = self.finish_reason == "stop" or len(self.steps) + 1 >= self.sampling.max_tokens
        before = tuple(self.tail)
        text = self.writer.take(finished=over)
        self.steps.append(SampledId(identifier, logprob(before, identifier), before, text))
        self.tail = [*self.tail, identifier][-REACH:]
        return over


class TextWriter:
    """The text of one reply while it grows; it holds back text that a stop string could still remove."""

    PROMPT_REACH = 8
    """How many ids of the prompt are decoded first: enough to complete a character that the prompt began."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], sampling: SamplingSettings) -> None:
        """Begin after `prompt`."""
        self.text = ""
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._decoder = DecodeStream(list(prompt[-self.PROMPT_REACH :]), sampling.skip_special)
        self._taken = 0
        longest = max((len(stop) for stop in sampling.stop), default=1)
        self._uncertain = 0 if sampling.keep_stop else longest - 1

    def write(self, identifier: int) -> str | None:
        """Add an id; return the stop string that ends first in its text, which is then cut off."""
        known = len(self.text)
        self.text += self._decoder.step(self._tokenizer, identifier) or ""
        # A stop string may begin in known text, but was not complete there.
        places = {stop: self.text.find(stop, max(known - len(stop) + 1, 0)) for stop in self._sampling.stop}
        ends = {stop: place + len(stop) for stop, place in places.items() if place >= 0}
        first = min(ends, key=lambda stop: ends[stop], default=None)
        if first is not None:
            self.text = self.text[: ends[first] - (0 if self._sampling.keep_stop else len(first))]
        return first

    def take(self, *, finished: bool) -> str:
        """Return the text that was not taken before and can no longer change."""
        end = len(self.text) if finished else max(len(self.text) - self._uncertain, self._taken)
        text, self._taken = self.text[self._taken : end], max(end, self._taken)
        return text
