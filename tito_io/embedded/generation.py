"""From a prompt to a finished reply: the sampler's endless ids, ended as an engine ends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from attrs import define, field, frozen
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from .draws import REACH, Rng, logprob
from .sampler import Sampler
from .vocabulary import CLOSE, OVER, Vocabulary, vocabulary


@frozen
class SampledId:
    """One id with what it adds."""

    id: int
    logprob: float
    before: tuple[int, ...]
    """The few ids just before it, on which its log-probability depends."""
    text: str
    """The text that became certain with it: often its own, sometimes none, sometimes of ids before it too."""


@define
class Generation:
    """A finished reply. Its ids hold the end token; its text does not."""

    prompt: tuple[int, ...]
    steps: tuple[SampledId, ...]
    finish_reason: str
    """`stop`, or `length` where a limit ended it."""
    stop_reason: int | str | None
    """The id or string that ended it; None for the turn's own end and for a limit."""
    sizes: tuple[int, ...] = field(default=())
    """How many ids each event of a stream carries."""

    @cached_property
    def ids(self) -> list[int]:
        """Return the sampled ids, the end token included."""
        return [step.id for step in self.steps]

    @cached_property
    def text(self) -> str:
        """Return the text without the end."""
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
    """Sample one reply to `prompt`, the `draw`-th of those asked for."""
    words = vocabulary()
    writer = Writer(words.tokenizer, prompt, sampling)
    loop = _Loop(words, sampling, writer, list(prompt[-REACH:]))
    for identifier in sampler.ids(prompt, seed=sampling.seed, draw=draw, must_call=sampling.must_call):
        if loop.take(identifier):
            break
    sizes = _sizes(len(loop.steps), Rng("events", sampler.seed, *loop.tail), sampler.fault_rates.bunches)
    return Generation(tuple(prompt), tuple(loop.steps), loop.finish_reason, loop.stop_reason, sizes)


@define
class _Loop:
    """What an engine does with each id until the reply is over."""

    words: Vocabulary
    sampling: SamplingSettings
    writer: Writer
    tail: list[int]
    steps: list[SampledId] = field(factory=list)
    finish_reason: str = "length"
    stop_reason: int | str | None = None

    def take(self, identifier: int) -> bool:
        """Take one id; return whether the reply is over."""
        ends = self._ends(identifier)
        if ends and len(self.steps) < self.sampling.min_tokens:
            return False
        stop = None if ends and not self.sampling.keep_stop else self.writer.write(identifier)
        if ends or stop is not None:
            self.finish_reason = "stop"
            self.stop_reason = self._reason(identifier) if ends else stop
        over = self.finish_reason == "stop" or len(self.steps) + 1 >= self.sampling.max_tokens
        self._keep(identifier, self.writer.take(finished=over))
        return over

    def _ends(self, identifier: int) -> bool:
        own = (self.words.id(CLOSE), self.words.id(OVER))
        wanted = identifier in own and not self.sampling.ignore_eos
        return wanted or identifier in self.sampling.stop_token_ids

    def _reason(self, identifier: int) -> int | None:
        """Return the id, except for the end of the turn: a turn that ends so has nothing to explain."""
        usual = identifier == self.words.id(CLOSE) and not self.sampling.ignore_eos
        return None if usual else identifier

    def _keep(self, identifier: int, text: str) -> None:
        before = tuple(self.tail)
        self.steps.append(SampledId(identifier, logprob(before, identifier), before, text))
        self.tail = [*self.tail, identifier][-REACH:]


def _sizes(count: int, dice: Rng, bunches: float) -> tuple[int, ...]:
    """Cut `count` ids into events of one id, here and there of two to four."""
    sizes: list[int] = []
    while count > 0:
        size = min(dice.between(2, 4) if dice.chance(bunches) else 1, count)
        sizes.append(size)
        count -= size
    return tuple(sizes)


@frozen(kw_only=True)
class SamplingSettings:
    """What shapes a distribution (`top_p`, penalties) is not here: there is none to shape."""

    max_tokens: int
    """At most this many ids, the end token among them."""
    min_tokens: int = 0
    """No end before this many ids."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end the reply and are cut from its text, not from its ids."""
    stop_token_ids: frozenset[int] = frozenset()
    """Ids that end the reply, beside the family's own."""
    ignore_eos: bool = False
    """Whether the family's end tokens are ids like any other."""
    keep_stop: bool = False
    """Whether the text keeps the string or the token that ended it."""
    skip_special: bool = True
    """Whether special tokens are left out of the text."""
    must_call: str | None = None
    """The name of the tool that has to be called; `""` for any."""


PRIMED = 8
"""How many ids of the prompt the decoder sees first: enough to finish a character that the prompt began."""


class Writer:
    """The text of one reply, while it grows."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], sampling: SamplingSettings) -> None:
        """Begin after `prompt`."""
        self.text = ""
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._stream = DecodeStream(list(prompt[-PRIMED:]), sampling.skip_special)
        self._given = 0
        longest = max((len(stop) for stop in sampling.stop), default=1)
        self._held = 0 if sampling.keep_stop else longest - 1

    def write(self, identifier: int) -> str | None:
        """Add an id; return the stop string that its text completes, if any, cut off already."""
        known = len(self.text)
        self.text += self._stream.step(self._tokenizer, identifier) or ""
        return self._stopped(known) if len(self.text) > known else None

    def take(self, *, finished: bool) -> str:
        """Return the text that was not returned before and can no longer change."""
        end = len(self.text) if finished else max(len(self.text) - self._held, self._given)
        taken, self._given = self.text[self._given : end], max(end, self._given)
        return taken

    def _stopped(self, known: int) -> str | None:
        """Look for the stop string that ends first, in text that is new or touches what is."""
        ends = {stop: self._end(stop, known) for stop in self._sampling.stop}
        found = min((stop for stop in ends if ends[stop] >= 0), key=lambda stop: ends[stop], default=None)
        if found is not None:
            self.text = self.text[: ends[found] - (0 if self._sampling.keep_stop else len(found))]
        return found

    def _end(self, stop: str, known: int) -> int:
        """Return where `stop` ends for the first time at or after the new text, or -1."""
        place = self.text.find(stop, max(known - len(stop) + 1, 0))
        return -1 if place < 0 else place + len(stop)
