"""Continue the message at the end of a request: after its ids if they were sampled here, else its text.

A turn of this session goes on after its very ids, without its stop token, and nothing is rendered. Any other
text is rendered with the conversation and left open; its ids are prompt, and do not train. What is sampled is
a turn of its own, whose message is the earlier text and the new text together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from tito_core import Forgiveness, Ids, Ledger, Message, Origin, Refusal, Step, TemplateRefused
from tito_core.locate import matches
from tito_core.media.first_prompt import FirstPrompt
from tito_core.normalization.compare import same
from tito_io.client.certificates import Certificates
from tito_io.client.token_client import CompletedTurn
from tito_io.client.turn import ClientTurn, Route, completion_of
from tito_io.client.turn_sampler import OpeningUnsupportedError, TurnSampler
from tito_io.engines.protocol import SampleRequest

from .refusals import RequestRefused
from .session import Session

ReadsKey = Callable[[Iterable[tuple[Message, Message]]], Awaitable[bool]]
REASONING = ("reasoning", "reasoning_content")
"""The names that engines have for reasoning."""
NOTHING_ADDED: Mapping[str, Any] = {
    "added": (),
    "inserted_close": (),
    "generation_prompt": 0,
    "replaced_stop": None,
    "kept_stop": None,
}
"""The ids that a continuation adds after a turn: none."""


@attrs.frozen
class Continuation:
    """A message at the end of a request that the model goes on with.

    Attributes:
        field: The field by which the client says so; errors name it.
        message: The message. It is not in the prompt of the turn.
    """

    field: str
    message: Message

    @classmethod
    def of(cls, field: str, message: Message) -> Continuation:
        """Return a message to go on with; raises `RequestRefused` for another's, and for one with calls."""
        asked = cls(field, message)
        if message.get("role") != "assistant":
            raise asked.refused("the last message is not the assistant's")
        if message.get("tool_calls"):
            raise asked.refused("the last message calls tools", "send their results")
        return asked

    def refused(self, why: str, instead: str = "leave it out") -> RequestRefused:
        """Return the error that names the client's field."""
        return RequestRefused(400, "bad_request", f"{self.field}: {why}; {instead}", parameter=self.field)

    @property
    def opening(self) -> Message | None:
        """The message with its text as a string; None where it has none, or several."""
        content = None if self.message.get("tool_calls") else self.message.get("content")
        if isinstance(content, list) and len(content) == 1:
            content = content[0].get("text")
        return {**self.message, "content": content} if isinstance(content, str) and content else None

    def is_message(self, other: Message, forgive: frozenset[Forgiveness]) -> bool:
        """Return whether a message is this one, white space included: the model goes on there."""
        return same(other, self.message, forgive - {Forgiveness.OUTER_WHITESPACE}) is not None


@attrs.frozen
class ContinuedTurn:
    """A turn that goes on with a message.

    Attributes:
        sampled: The turn, and those after the same prompt.
        before: The message that it goes on with, as the session has it.
    """

    sampled: CompletedTurn
    before: Message

    @classmethod
    def of(cls, turn: ClientTurn, steps: Sequence[Step], before: Message) -> ContinuedTurn:
        """Return a turn whose messages begin with the one before."""
        joined = [attrs.evolve(one, completion=[_joined(before, one.completion[0])]) for one in steps]
        return cls(CompletedTurn(attrs.evolve(turn, step=joined[0]), tuple(joined)), before)


async def continue_turn(
    sampler: TurnSampler,
    session: Session,
    request: SampleRequest,
    asked: Continuation,
    certificates: Certificates,
    reads_key: ReadsKey,
) -> ContinuedTurn:
    """Sample what follows a message; raises `RequestRefused` where nothing can.

    Args:
        sampler: How turns are sampled.
        session: The session; it is read, not changed.
        request: The conversation before the message, and how to sample.
        asked: The message.
        certificates: What is known of each rendering.
        reads_key: Returns whether the template reads a key in which messages that came back differ.
    """
    if sampler.engine.keeps_ids:
        raise asked.refused(f"{sampler.engine.name} keeps ids itself, and goes on with no message")
    if request.sampling.constraint is not None:
        raise asked.refused("a turn that is continued cannot be constrained")
    steps = session.trajectory  # those that there were when the request came
    step = sampled_step(session, request, asked, sampler.policy.forgive)
    if step is not None and await reads_key(zip(step.messages, whole(request, asked), strict=True)):
        step = None
    after = None if step is None else await _after_ids(sampler, step, request)
    if after is not None:
        return after
    opening = asked.opening
    if opening is None:
        raise asked.refused("the last message was not sampled in this session, and is not one text")
    begun = attrs.evolve(request, rendering=attrs.evolve(request.rendered_with, opening=opening))
    known = await certificates.of(begun.rendered_with)
    try:
        turn = await sampler.turn_after(steps, begun, known)
    except (TemplateRefused, OpeningUnsupportedError) as error:
        raise asked.refused(str(error)) from error
    return ContinuedTurn.of(turn, [_opened(one.step) for one in turn.group], opening)


def whole(request: SampleRequest, asked: Continuation) -> list[Message]:
    """Return the conversation with the message that is gone on with."""
    return [*(request.messages or ()), asked.message]


def sampled_step(
    session: Session, request: SampleRequest, asked: Continuation, forgive: frozenset[Forgiveness]
) -> Step | None:
    """Return the step that sampled the message after this conversation; None where none can go on.

    A turn that ended at a stop string cannot: its ids spell the string, and its message lacks it.
    """
    messages, key = whole(request, asked), request.rendered_with.key
    found = matches(session.trajectory, messages, forgive, frozenset(), len(messages))
    steps = (match.step for match in found)
    ending = (one for one in steps if one.key == key and one.messages.length == len(messages))
    step = next((one for one in ending if asked.is_message(one.completion[0], forgive)), None)
    stopped = (one.step.ids for one in session.commits.values() if isinstance(one.origin.stop_reason, str))
    return None if step is None or any(step.ids == ids for ids in stopped) else step


async def _after_ids(sampler: TurnSampler, step: Step, request: SampleRequest) -> ContinuedTurn | None:
    """Sample what follows a step's ids; None, and nothing was sampled, where its images went by messages."""
    if len(step.media) != step.messages.media:
        return None
    sampled = await sampler.sample_after(without_stop(step), step.messages, request)
    if isinstance(sampled, Refusal):
        return None
    prompt, reply = sampled
    steps = [prompt.then(**completion_of(one), key=step.key) for one in (reply, *reply.siblings)]
    turn = ClientTurn(Route.TITO, steps[0], reply, None, None)
    return ContinuedTurn.of(turn, steps, step.completion[0])


def without_stop(step: Step) -> FirstPrompt:
    """Return what goes on after a step: its prompt and its sampled ids, without its stop token."""
    ids, ledger = step.ids, step.ledger
    if step.stop is not None:
        sampled = step.completion_ids.tolist()[:-1]
        ids = step.prompt_ids.then(Ids.of(sampled).packed().part)
        ledger = step.prompt_ledger.then((Origin.SAMPLED, len(sampled)))
    return FirstPrompt(messages=step.prompt, ids=ids, ledger=ledger, media=step.media, **NOTHING_ADDED)


def _opened(step: Step) -> Step:
    """Return a step in whose ledger the beginning of the answer is rendered from a message, as it was."""
    ledger = step.prompt_ledger
    *runs, (origin, count) = ledger.own
    if origin is not Origin.GENERATION_PROMPT:
        return step
    before = Ledger() if ledger.parent is None else ledger.parent
    return attrs.evolve(step, prompt_ledger=before.then(*runs, (Origin.PROMPT, count)))


def _joined(before: Message, after: Message) -> Message:
    """Return the message that a client makes of the one it had and the one it receives.

    >>> _joined({"role": "assistant", "content": "He", "reasoning": "h"}, {"content": "llo"})
    {'role': 'assistant', 'content': 'Hello', 'reasoning': 'h'}
    """
    joined = {**before, "content": f"{before.get('content') or ''}{after.get('content') or ''}"}
    reasoning = f"{_reasoning(before)}{_reasoning(after)}"
    calls = {"tool_calls": after["tool_calls"]} if after.get("tool_calls") else {}
    return {**joined, **({_reasoning_name(before, after): reasoning} if reasoning else {}), **calls}


def new_part(before: Message, joined: Message) -> Message:
    """Return the message that a client received: what a continued turn adds to the message before it.

    >>> new_part({"role": "assistant", "content": "He", "reasoning": "h"},
    ...          {"role": "assistant", "content": "Hello", "reasoning": "h"})
    {'role': 'assistant', 'content': 'llo'}
    """
    content = str(joined.get("content") or "").removeprefix(str(before.get("content") or ""))
    reasoning = _reasoning(joined).removeprefix(_reasoning(before))
    others = {name: value for name, value in joined.items() if name not in ("content", *REASONING)}
    return {**others, "content": content, **({_reasoning_name(joined): reasoning} if reasoning else {})}


def _reasoning(message: Message) -> str:
    return str(next(filter(None, map(message.get, REASONING)), ""))


def _reasoning_name(*messages: Message) -> str:
    """Return the name under which the first message with reasoning has it."""
    named = (name for message in messages for name in REASONING if message.get(name))
    return next(named, REASONING[0])
