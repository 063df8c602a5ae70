"""An example conversation for each case: the ids sampled in it, and where a fresh render first differs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from attrs import evolve, frozen

from tito_core import TemplateRefused
from tito_core.normalization.canonical import calls_in
from tito_core.seams.case import TurnKind
from tito_core.seams.sample import sample_environment, sample_turn
from tito_core.seams.seam import common_prefix
from tito_io.families.chunk_encoder import EncodedText
from tito_io.families.family import Family

from .meter import LintMeter
from .report import Divergence, tokens

Plain = dict[str, Any]
SYSTEM: Plain = {"role": "system", "content": "Answer in one word."}
USER: Plain = {"role": "user", "content": "Where is it raining?"}
_SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
TOOL: Plain = {
    "type": "function",
    "function": {"name": "find", "description": "Find a place.", "parameters": _SCHEMA},
}
ARGUMENT, ANSWER, EARLIER = "Oslo", "Fjord", "Bergen"
"""Words that each stand in one place, and that no tokenizer merges with what a template writes after them."""
FOLLOWS = "And tomorrow"
CONTEXT, SHOWN, COMPARED = 6, 12, 60
"""Tokens of a divergence that are shown before the place and from it on, and that are compared."""
ANCHOR = 3
"""So many equal ids in a row mean that both sides agree again."""


@frozen
class ExampleConversation:
    """A conversation around a turn.

    Attributes:
        history: The messages before the turn.
        turn: The sampled message.
        environment: The messages after it.
    """

    history: tuple[Plain, ...]
    turn: Plain
    environment: tuple[Plain, ...]

    @property
    def prompt(self) -> tuple[Plain, ...]:
        """The messages of the next request."""
        return (*self.history, self.turn, *self.environment)


def example_conversations(
    kind: TurnKind, shape: Sequence[str], spellings: Sequence[bool]
) -> Iterator[ExampleConversation]:
    """Yield conversations of a case, the one that most templates accept first.

    Args:
        kind: The turn.
        shape: The roles after it.
        spellings: Whether the arguments of calls are objects (True) or JSON texts (False), in this order.
    """
    for as_object in spellings:
        turn = _with_argument(sample_turn(kind, ["find"] * kind.calls), ARGUMENT, as_object=as_object)
        if turn.get("content"):
            turn = {**turn, "content": ANSWER}
        environment = sample_environment(shape, turn, 2, FOLLOWS)
        loop: tuple[Plain, ...] = ()
        if kind.before == "tool":  # a call and its result before the turn, with reasoning if the turn has it
            earlier = TurnKind(before="user", reasoning=kind.reasoning, calls=1, content="empty")
            call = _with_argument(sample_turn(earlier, ["seek"]), EARLIER, as_object=as_object)
            loop = (call, *sample_environment(("tool",), call, 1, "Rain"))
        for opening in ((SYSTEM, USER), (USER,)):
            yield ExampleConversation((*opening, *loop), turn, environment)


def _with_argument(turn: Plain, word: str, *, as_object: bool) -> Plain:
    """Return a turn with this word in the arguments of each call."""
    arguments: object = {"value": word} if as_object else f'{{"value": "{word}"}}'
    calls = [{**call, "function": {**call["function"], "arguments": arguments}} for call in calls_in(turn)]
    return {**turn, "tool_calls": calls} if calls else turn


@frozen
class SampledExample:
    """An example conversation as ids.

    Attributes:
        conversation: The conversation.
        prompt: The ids that the engine was sent.
        sampled: The ids of the turn.
        rendered: The next prompt, rendered afresh.
        rest: How many sampled ids follow the turn's last word: the rest of a call, and the stop.
        tail: The ids of the fresh render after that word; None if the render lacks the word.
        stopped: Whether the turn ends with an id that ends turns.
    """

    conversation: ExampleConversation
    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    rendered: tuple[int, ...]
    rest: int
    tail: tuple[int, ...] | None
    stopped: bool

    @property
    def used(self) -> tuple[int, ...]:
        """The ids in use: the prompt and the turn."""
        return self.prompt + self.sampled

    @property
    def ending(self) -> tuple[int, ...]:
        """The sampled ids after the turn's last word."""
        return self.sampled[len(self.sampled) - self.rest :]


@frozen
class ExampleSampler:
    """Plays the engine: samples the turn of an example conversation as the template writes it.

    Attributes:
        meter: Renders.
        ends: Ids that may end a turn.
        stops: Stop ids of the engine.
    """

    meter: LintMeter
    ends: frozenset[int]
    stops: frozenset[int]

    def sample(self, conversation: ExampleConversation, *, cut: bool) -> SampledExample | None:
        """Return the conversation as ids; None if the template rejects it or does not write the turn.

        The turn is what the template writes if nothing follows. `cut` ends it after its last word.
        """
        try:
            prompt = self.meter.text(conversation.history, speaking=True)
            last = self.meter.text((*conversation.history, conversation.turn), speaking=False)
            following = self.meter.text(conversation.prompt, speaking=True)
            turn = self._turn_text(prompt, last, conversation.turn)
            word = max((one for one in (ARGUMENT, ANSWER) if one in turn), key=turn.rfind, default=None)
            if word is None:
                return None
            return self._ids(conversation, (prompt, turn, following), word, cut=cut)
        except TemplateRefused:
            return None

    def _turn_text(self, prompt: str, last: str, turn: Plain) -> str:
        """Return the text of a turn; reasoning that the template never writes is put in front, bare."""
        if last.startswith(prompt):
            text = last[len(prompt) :]
        else:  # the generation prompt is not what the template writes before the finished turn
            encoded = self.meter.encoded(last)
            at = common_prefix(self.meter.encoded(prompt).ids, encoded.ids)
            text = last[encoded.offsets[at][0] :] if at < len(encoded.ids) else ""
        reasoning = turn.get("reasoning", "")
        return text if reasoning in text else f"{reasoning}\n{text}"

    def _ids(
        self, conversation: ExampleConversation, texts: tuple[str, str, str], word: str, *, cut: bool
    ) -> SampledExample:
        """Tokenize; the turn ends with the first id after its last word that ends turns."""
        before, turn, rendered = map(self.meter.encoded, texts)
        after_word, shown = _after(turn, texts[1], word), _after(rendered, texts[2], word)
        positions = range(after_word, len(turn.ids))
        end = next((i for i in positions if turn.ids[i] in self.ends), len(turn.ids) - 1)
        size = after_word if cut else end + 1
        example = SampledExample(
            conversation=conversation,
            prompt=tuple(before.ids),
            sampled=tuple(turn.ids[:size]),
            rendered=tuple(rendered.ids),
            rest=max(size - after_word, 0),
            tail=tuple(rendered.ids[shown:]) if _end_of(word, texts[2]) else None,
            stopped=not self.ends.isdisjoint(turn.ids[size - 1 : size]),
        )
        opener = example.rendered[len(example.used) :][:1]
        kept = example.rendered[: len(example.used)] == example.used
        if cut or example.stopped or not kept or not self.stops.intersection(opener):
            return example
        # If the template closes no turn, the turn stops with the opener of the next message.
        return evolve(example, sampled=example.sampled + opener, rest=example.rest + 1, stopped=True)


def _after(encoded: EncodedText, text: str, word: str) -> int:
    """Return the position of the first id after the last occurrence of a word."""
    end = _end_of(word, text)
    return next((i for i, (begin, _) in enumerate(encoded.offsets) if begin >= end), len(encoded.ids))


def _end_of(word: str, text: str) -> int:
    """Return where the last occurrence of a word ends, 0 if the text lacks it.

    Templates may write earlier turns in other letters, so that capital and small ones are the same here.

    >>> _end_of("Fjord", "a fjord, a FJORD."), _end_of("Fjord", "a bay.")
    (16, 0)
    """
    return max((match.end() for match in re.finditer(re.escape(word), text, re.IGNORECASE)), default=0)


def divergence(family: Family, example: SampledExample) -> Divergence | None:
    """Return the first place where a fresh render differs, None if it repeats all ids in use."""
    at = common_prefix(example.used, example.rendered)
    if at == len(example.used):
        return None
    used, rendered = example.used[at : at + COMPARED], example.rendered[at : at + COMPARED]
    gone, new = until_equal(used, rendered)
    return Divergence(
        at=at,
        before=tokens(family, example.used[max(at - CONTEXT, 0) : at]),
        used=tokens(family, used[:SHOWN]),
        rendered=tokens(family, rendered[:SHOWN]),
        in_prompt=at < len(example.prompt),
        dropped=family.decode(used[:gone]),
        added=family.decode(rendered[:new]),
        gone=gone,
        new=new,
    )


@lru_cache(maxsize=16)  # most pairs have the longest size, and sorting takes longer than looking
def _places(used: int, rendered: int) -> list[tuple[int, int]]:
    """Return the places at which two sides may agree again, the nearest first."""
    places = [(gone, new) for gone in range(used) for new in range(rendered) if gone or new]
    # Templates drop or add text more often than they replace it, so a place on both sides counts double.
    return sorted(places, key=lambda place: sum(place) * (2 if all(place) else 1))


def until_equal(used: tuple[int, ...], rendered: tuple[int, ...]) -> tuple[int, int]:
    """Return how many ids of each side come before both agree again for `ANCHOR` ids, or up to the end.

    >>> until_equal((7, 8, 5, 6, 2), (5, 6, 2, 1)), until_equal((3, 2), (4, 5, 2))
    ((2, 0), (1, 2))
    """
    for gone, new in _places(len(used), len(rendered)):
        here = used[gone : gone + ANCHOR]
        if rendered[new : new + len(here)] == here:
            return gone, new
    return len(used), min(len(used), len(rendered))
