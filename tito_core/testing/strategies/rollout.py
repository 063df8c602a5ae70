"""Rollouts to play against an integration: what is new before each turn, and what the engine samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ...bridge import Bridge
from ...errors import InputError
from ...refusal import Refusal
from ..arguments import checked_toys
from ..expected import Template, expected_parts
from ..sampled_turn import SampledTurn
from ..tails import rendering, tail_on
from ..toys import LOCAL_TOYS, Toy
from .choices import CHOICES, Choices, Draw
from .message import Chat, result, speech
from .message import call as drawn_call
from .sampled import ended, right_stop
from .text import PLAIN_WORDS, TRICKY_WORDS

ANSWERS = PLAIN_WORDS * 4 + TRICKY_WORDS
"""What assistants say: no special tokens, at which the engine would have stopped."""
QUESTION: dict[str, Any] = {"role": "user", "content": "ab"}
REPLY: dict[str, Any] = {"role": "assistant", "content": "ba"}


@attrs.frozen
class RolloutTurn:
    """One model call.

    Attributes:
        messages: The conversation up to this call: what its prompt stands for.
        new_messages: Those of them that are new since the call that this one continues.
        sampled_before: For each assistant message in `messages`, what the engine sampled.
        message: What the model answered.
        sampled: What the engine returned: ids, log-probabilities, and whether the turn was cut short.
        parent: The index of the turn that this one continues; None for the first.
        extendable: Whether tito's `Bridge` gives a prompt for this call, under the strict policy and with all
            that can be known. If so, code that refuses it refuses without need. True for the first.
    """

    messages: list[dict[str, Any]]
    new_messages: list[dict[str, Any]]
    sampled_before: list[SampledTurn]
    message: dict[str, Any]
    sampled: SampledTurn
    parent: int | None = None
    _template: Toy | None = attrs.field(default=None, repr=False, eq=False)
    _before: RolloutTurn | None = attrs.field(default=None, repr=False, eq=False)

    @property
    def extendable(self) -> bool:
        """Ask the bridge, which takes some ten renders: most tests never need it."""
        if self._template is None or self._before is None:
            return True
        return _is_extended(self._template, self._before, self.new_messages)

    @property
    def ids(self) -> list[int]:
        """The ids that the engine returned."""
        return list(self.sampled.ids)

    @property
    def logprobs(self) -> list[float | None]:
        """The log-probability of each id."""
        return list(self.sampled.logprobs or ())


@attrs.frozen
class Rollout:
    """A conversation with an engine, to be repeated through the code under test.

    Attributes:
        template: A toy: call it to render messages; it has `encode`, `decode` and `stop_ids`.
        turns: The model calls, in order.
    """

    template: Toy
    turns: tuple[RolloutTurn, ...]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation of the last turn, with its answer: what a training row stands for."""
        return [*self.turns[-1].messages, self.turns[-1].message]

    @property
    def sampled(self) -> list[SampledTurn]:
        """For each assistant message in `messages`, what the engine sampled."""
        return [*self.turns[-1].sampled_before, self.turns[-1].sampled]


def _is_extended(toy: Toy, before: RolloutTurn, new: Chat) -> bool:
    """Return whether a bridge that knows all of a call gives the prompt of the next one."""
    template = Template(toy, toy.decode, frozenset(toy.stop_ids))
    answers = [place for place, message in enumerate(before.messages) if message["role"] == "assistant"]
    turns = dict(zip(answers, before.sampled_before, strict=True))
    parts = expected_parts(template, before.messages, turns, None)
    found = Bridge(toy, toy.stop_ids, suffix=toy.suffix).extend(
        [*(index for part in parts for index in part.choices[0]), *before.ids],
        new,
        turn=before.message,
        history=before.messages,
        sampled=len(before.ids),
        truncated=before.sampled.truncated,
    )
    return not isinstance(found, Refusal)


def is_written(toy: Toy, messages: Sequence[dict[str, Any]], turn: int) -> bool:
    """Return whether a toy takes the messages as they are, and writes all that is new after a turn."""
    page = rendering(toy, messages)
    return page is not None and tail_on(toy, page, turn + 1, len(messages)) is not None


def can_play(toy: Toy) -> bool:
    """Return whether a toy writes a plain conversation, the same at each render."""
    return not toy.nondeterministic and is_written(toy, [QUESTION, REPLY, QUESTION], 1)


UNCLEAR = frozenset(("plain_merged_header", "plain_merged_letters", "truncating"))
"""Toys that merge the end of a turn with what follows it, or cut turns: no code can always continue them."""
PLAYABLE = tuple(toy for toy in LOCAL_TOYS if can_play(toy) and toy.name not in UNCLEAR)


def rollouts(
    templates: Sequence[Toy] = PLAYABLE, *, max_turns: int = 4, branches: bool = False
) -> SearchStrategy[Rollout]:
    """Draw rollouts: one toy template, and turns of all kinds that it writes.

    Turns call tools, reason, say odd texts, have ids that the tokenizer does not write, and are cut short.

    Args:
        templates: The toys to draw from. The default has those that a right integration can continue.
        max_turns: The most model calls of a rollout.
        branches: Whether a turn may continue an earlier one than the last (`RolloutTurn.parent`).

    Raises:
        InputError: A template is no toy, or cannot render a plain conversation twice alike.
    """
    toys = checked_toys(templates)
    unfit = [toy.name for toy in toys if not can_play(toy)]
    if unfit or not toys:
        raise InputError(f"templates: rollouts need toys that render a plain conversation; not so: {unfit}")
    return _rollouts(toys, max_turns, branches)


@st.composite
def _rollouts(draw: DrawFn, templates: tuple[Toy, ...], most: int, branches: bool) -> Rollout:  # as drawn
    toy = draw(st.sampled_from(templates))
    turns: list[RolloutTurn] = []
    for _ in range(draw(st.integers(1, most))):
        choices = draw(CHOICES)
        elsewhere = branches and turns and choices.once_in(3)
        before = None if not turns else choices.pick(turns) if elsewhere else turns[-1]
        turns.append(_turn(draw, toy, before, turns.index(before) if before else None))
    return Rollout(toy, tuple(turns))


def _turn(draw: Draw, toy: Toy, before: RolloutTurn | None, parent: int | None) -> RolloutTurn:
    """Draw one more turn, which continues another one."""
    chat = [*before.messages, before.message] if before else []
    new = next(one for one in _drafts_of_new(draw, toy, chat) if _may_follow(toy, chat, one))
    messages = [*chat, *new]
    for message in _drafts_of_answer(draw, toy, len(messages)):
        longer = [*messages, message, *_plain_answer(toy, message)]
        if is_written(toy, longer, len(messages)) and not _stops_inside(toy, longer, len(messages)):
            break
    earlier = [*before.sampled_before, before.sampled] if before else []
    sampled = _sampled(draw(CHOICES), toy, longer, len(messages))
    return RolloutTurn(messages, new, earlier, message, sampled, parent, toy, before)


def _may_follow(toy: Toy, chat: Chat, new: Chat) -> bool:
    """Return whether a toy writes new messages; the first ones, if a plain conversation continues them."""
    if chat:
        return is_written(toy, [*chat, *new], len(chat) - 1)
    return is_written(toy, [*new, REPLY, QUESTION], len(new))


def _drafts_of_new(draw: Draw, toy: Toy, chat: Chat) -> Iterator[Chat]:
    """Yield new messages, the plainer ones later; the last ones may always follow."""
    choices = draw(CHOICES)
    said = speech(draw(CHOICES))
    results = [result(draw(CHOICES), call) for call in (chat[-1].get("tool_calls") or () if chat else ())]
    if not chat and choices.once_in(3):
        yield [speech(draw(CHOICES), "system"), said]
    if results and choices.once_in(3):
        yield [*results, said]
    yield results or [said]
    yield _plain_answer(toy, chat[-1]) if chat else [QUESTION]


def _stops_inside(toy: Toy, chat: Chat, place: int) -> bool:
    """Return whether the text of a message has a stop, at which the engine would have ended the turn."""
    return any(index in toy.stop_ids for index in toy.sample(chat[: place + 1]))


def _plain_answer(toy: Toy, message: Mapping[str, Any]) -> Chat:
    """Return what may always follow a message: plain results of its calls, or a question."""
    calls = message.get("tool_calls") or () if "tool" in toy.roles else ()
    return [result(Choices(0), call) for call in calls] or [QUESTION]


def _drafts_of_answer(draw: Draw, toy: Toy, place: int) -> Iterator[dict[str, Any]]:
    """Yield answers, the plainer ones later; the last one may always follow."""
    choices = draw(CHOICES)
    kind = choices.pick(("text", "call", "text", "reasoning", "call"))
    plain = {"role": "assistant", "content": choices.pick(ANSWERS)}
    if kind == "call" and "tool" in toy.roles:
        calls = [_call(draw(CHOICES), place, index) for index in range(choices.pick((1, 1, 2)))]
        yield plain | {"content": choices.pick(("", "a")), "tool_calls": calls}
    if kind == "reasoning":
        yield plain | {"reasoning_content": choices.pick(PLAIN_WORDS)}
    yield plain
    yield REPLY


def _call(choices: Choices, place: int, index: int) -> dict[str, Any]:
    """Return a call with an id that no earlier call has, as servers make them."""
    return drawn_call(choices, index) | {"id": f"call{place:04}{index}"}


def _sampled(choices: Choices, toy: Toy, chat: Chat, place: int) -> SampledTurn:
    """Return what an engine samples for the message at `place`, which a new message follows in `chat`."""
    words = toy.sample(chat[: place + 1], mask=choices.pick((0, 1, 2, 3, 5, 7)))
    if set(words) & set(toy.stop_ids):  # in other pieces the text may hold a stop that it lacks as a whole
        words = toy.sample(chat[: place + 1])
    truncated = choices.once_in(4) and not chat[place].get("tool_calls")
    ids = words if truncated else ended(toy, words, right_stop(toy, chat, place))
    logprobs = [-(1 + choices.pick(range(7))) / 8 for _ in ids]
    return SampledTurn(ids, logprobs, truncated)
