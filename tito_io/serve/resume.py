"""A turn that goes on where it ended: from its very ids, its stop taken off, and nothing rendered.

The last message of the request must be a turn that was sampled in this session. What is sampled now is a turn
of its own: its prompt ends with the earlier one's ids, and its message is both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import Forgiveness, Ids, InputError, Ledger, Message, Step, Trajectory
from tito_core.locate import matches
from tito_io.client.conversation import ClientTurn, Route, reply_message
from tito_io.client.sampling import parse_sampling
from tito_io.client.token_client import SampledTurn
from tito_io.engines.protocol import AbortedError, Engine, Rendering, Reply, Watch

from .prompt import Prompt

OPTION = "continue_final_message"


async def resumed(  # noqa: PLR0913  # what a request says, and what the session knows
    engine: Engine,
    steps: Trajectory,
    prompt: Prompt,
    key: str,
    *,
    sampling: Mapping[str, Any],
    forgive: frozenset[Forgiveness],
    watch: Watch | None,
    stopped: Sequence[Step] = (),
) -> SampledTurn:
    """Sample what follows the last message; raises `InputError` where that is no turn of the session.

    `stopped` are the steps that a stop string ended: their ids spell it, and their messages do not.
    """
    step = _ended(steps, prompt, key, forgive)
    if any(step.ids == one.ids for one in stopped):
        raise InputError(
            f"{OPTION}: the last message ended at a stop string, which its ids hold and its text does not; "
            "leave it out"
        )
    ids, ledger = _opened(step)
    asked = parse_sampling(sampling)
    rendering = Rendering(tools=tuple(prompt.tools), template_args=asked.template_args)
    reply = await engine.from_ids(ids, asked.sampling, rendering, watch=watch)
    if reply.finish_reason == "abort":
        error = AbortedError("the engine gave the turn up; what it had sampled is in `partial`")
        error.partial = reply
        raise error
    made = tuple(_step(step, ids, ledger, one) for one in (reply, *reply.siblings))
    return SampledTurn(ClientTurn(Route.TITO, made[0], reply, None, None), made)


def _ended(steps: Trajectory, prompt: Prompt, key: str, forgive: frozenset[Forgiveness]) -> Step:
    """Return the step that ends with the prompt's last message."""
    for match in matches(steps, prompt.messages, forgive):
        if match.step.messages.length == len(prompt.messages) and match.step.key == key:
            if not match.step.completion[0].get("tool_calls"):
                return match.step
            raise InputError(f"{OPTION}: the last message calls tools; send their results")
    raise InputError(
        f"{OPTION}: the last message is no turn that was sampled in this session, word for word; leave it out"
    )


def _opened(step: Step) -> tuple[Ids, Ledger]:
    """Return a step's ids without its stop, and who wrote them."""
    if step.stop is None:
        return step.ids, step.ledger
    said = step.completion_ids.tolist()[:-1]
    return step.prompt_ids.then(Ids.of(said).packed().part), step.ledger.without_last()


def _step(before: Step, ids: Ids, ledger: Ledger, reply: Reply) -> Step:
    return Step(
        prompt=before.prompt,
        completion=[_together(before.completion[0], reply_message(reply))],
        prompt_ids=ids,
        completion_ids=reply.completion_ids,
        logprobs=reply.logprobs,
        truncated=reply.truncated,
        key=before.key,
        prompt_ledger=ledger,
    )


def _together(before: Message, after: Message) -> Message:
    """Return the message that a client makes of what it had and what it is told.

    >>> _together({"role": "assistant", "content": "He", "reasoning": "h"}, {"content": "llo"})
    {'role': 'assistant', 'content': 'Hello', 'reasoning': 'h'}
    """
    found = {**before, "content": f"{before.get('content') or ''}{after.get('content') or ''}"}
    thought = f"{before.get('reasoning') or ''}{after.get('reasoning') or ''}"
    calls = {"tool_calls": after["tool_calls"]} if after.get("tool_calls") else {}
    return {**found, **({"reasoning": thought} if thought else {}), **calls}
