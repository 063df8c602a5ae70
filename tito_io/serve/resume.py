"""Continue a turn where it ended (`continue_final_message`): from its own ids, without its stop token.

The last message of the request must be a turn that was sampled in this session; nothing is rendered. What is
sampled now is a turn of its own. Its prompt ends with the earlier turn's ids, and its message is the earlier
text and the new text together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tito_core import Forgiveness, Ids, Message, Origin, Refusal, Step, Trajectory
from tito_core.locate import matches
from tito_core.media.first_prompt import FirstPrompt
from tito_core.normalization.compare import same
from tito_io.client.token_client import CompletedTurn
from tito_io.client.turn import ClientTurn, Route, completion_of
from tito_io.client.turn_sampler import TurnSampler
from tito_io.engines.protocol import Reply, SampleRequest

from .refusals import RequestRefused
from .session import Session

OPTION = "continue_final_message"
REASONING = ("reasoning", "reasoning_content")
"""The names that engines have for reasoning."""
NOTHING_ADDED: Mapping[str, Any] = {
    "added": (),
    "inserted_close": (),
    "generation_prompt": 0,
    "replaced_stop": None,
    "kept_stop": None,
}
"""What stands between a turn and what it goes on with."""


async def continue_turn(sampler: TurnSampler, session: Session, asked: SampleRequest) -> CompletedTurn:
    """Sample what follows the last message; raises `RequestRefused` where that is no turn of the session.

    Args:
        sampler: How turns are sampled.
        session: The session; it is read, not changed.
        asked: The conversation, whose last message is continued, and how to sample.
    """
    step = last_step(session.trajectory, asked, sampler.policy.forgive)
    # Their ids spell the stop string, their messages lack it.
    stopped = (one.step for one in session.commits.values() if isinstance(one.origin.stop_reason, str))
    if any(step.ids == one.ids for one in stopped):
        raise _refused("the last message ended at a stop string, which its ids hold and its text does not")
    if asked.sampling.constraint is not None:
        raise _refused("a turn that is continued cannot be constrained")
    if len(step.media) != step.messages.media:
        raise _refused("the last message follows images that went by messages")
    sampled = await sampler.sample_after(without_stop(step), step.messages, asked)
    if isinstance(sampled, Refusal):
        raise _refused(sampled.detail)
    prompt, reply = sampled
    steps = tuple(_step(step, prompt, one) for one in (reply, *reply.siblings))
    return CompletedTurn(ClientTurn(Route.TITO, steps[0], reply, None, None), steps)


def last_step(steps: Trajectory, asked: SampleRequest, forgive: frozenset[Forgiveness]) -> Step:
    """Return the step that ends with the prompt's last message, white space included: it goes on there."""
    for step in last_steps(steps, asked.messages or (), asked.rendered_with.key, forgive):
        if not step.completion[0].get("tool_calls"):
            return step
        raise _refused("the last message calls tools", "send their results")
    raise _refused("the last message is not, word for word, a turn that was sampled in this session")


def last_steps(
    steps: Trajectory, prompt: Sequence[Message], key: str, forgive: frozenset[Forgiveness]
) -> Iterator[Step]:
    """Yield all steps that end with the prompt's last message, the preferred one first."""
    exact = forgive - {Forgiveness.OUTER_WHITESPACE}
    for match in matches(steps, prompt, forgive, frozenset(), len(prompt)):
        last = match.step.messages.length == len(prompt) and match.step.key == key
        if last and same(match.step.completion[0], prompt[-1], exact) is not None:
            yield match.step


def _refused(why: str, instead: str = "leave it out") -> RequestRefused:
    return RequestRefused(400, "InputError", f"{OPTION}: {why}; {instead}", parameter=OPTION)


def without_stop(step: Step) -> FirstPrompt:
    """Return what goes on after a step: its prompt and its sampled ids, without its stop token."""
    ids, ledger = step.ids, step.ledger
    if step.stop is not None:
        sampled = step.completion_ids.tolist()[:-1]
        ids = step.prompt_ids.then(Ids.of(sampled).packed().part)
        ledger = step.prompt_ledger.then((Origin.SAMPLED, len(sampled)))
    return FirstPrompt(messages=step.prompt, ids=ids, ledger=ledger, media=step.media, **NOTHING_ADDED)


def _step(before: Step, prompt: FirstPrompt, reply: Reply) -> Step:
    completion = completion_of(reply)
    completion["completion"] = [_joined(before.completion[0], *completion["completion"])]
    return prompt.then(**completion, key=before.key)


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
