"""Where a prompt continues what was sampled: found once, before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from .bridge import named_case
from .environment import clean, flattened
from .errors import InputError
from .find import Match, find
from .forgiveness import Forgiveness
from .kind import Kind
from .message import Message, Messages, copied, is_multimodal
from .policy import STRICT, Policy, Truncated
from .proof import Environment, Turn
from .refusal import Reason, Refusal
from .restored import restored
from .step import Step
from .trajectory import Trajectory


@attrs.frozen(slots=False)
class Located:
    """A place where a prompt can go on by ids, if what the template writes there can be proven."""

    match: Match
    turn: Turn
    """The sampled turn before the place, as the prompt restates it."""
    _environment: Environment
    policy: Policy
    key: str | None
    """What the prompt is rendered with."""

    @property
    def environment(self) -> Environment:
        """Copies of the prompt's messages after the turn."""
        return copied(self._environment, "environment")

    @cached_property
    def clean(self) -> Environment:
        """The environment as it is rendered."""
        return clean(self._environment)

    @property
    def case(self) -> tuple[Kind, tuple[str, ...]] | None:
        """Which case of a profile this is, None where it has no name.

        A caller whose profile does not know the case may have it certified (`certifying`), once.
        """
        return named_case(self.turn, self.clean)


def locate(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    *,
    policy: Policy = STRICT,
    key: str | None = None,
) -> Located | Refusal:
    """Return where the prompt continues a step, or why it cannot; nothing is asked.

    The arguments are those of `stitch`, and `continuing` goes on from there: until it has, the messages of
    `prompt` must stay as they are. Raises `InputError` for malformed input.

    >>> step = Step(prompt=[{"role": "user", "content": "A"}], prompt_ids=[1, 4, 65, 2, 1, 9],
    ...             completion=[{"role": "assistant", "content": "xy"}], completion_ids=[777, 2])
    >>> located = locate([step], [*step.messages, {"role": "user", "content": "B"}])
    >>> located.match.step is step, located.environment
    (True, ({'role': 'user', 'content': 'B'},))
    >>> locate([step], [{"role": "user", "content": "B"}]).reason.name
    'NO_PREFIX'
    """
    _check(policy, key)
    prompt = _listed(prompt)
    match = find(_steps(trajectory), prompt, policy.forgive, key)
    if isinstance(match, Refusal):
        return _unmatched(match, prompt)
    if Forgiveness.RENAMED_TOOL_IDS in match.forgiven:
        prompt = restored(match.step.messages, prompt)
    start = match.step.messages.length
    message, *environment = _taken(prompt, start - 1)
    seen = _taken(prompt) if Forgiveness.OTHER_KEYS in match.forgiven else environment
    refusal = _unfit(match.step, message, seen, policy)
    if refusal is not None:
        return refusal
    turn = Turn(
        message=message,
        after=match.step.messages.role(start - 2) if start > 1 else "user",
        history=flattened(_history(prompt, match.step)),
        stop=match.step.stop,
        prompt=prompt,
        place=start - 1,
    )
    return Located(match, turn, tuple(environment), policy, key)


def _check(policy: object, key: object) -> None:
    """Refuse choices that are none."""
    if not isinstance(policy, Policy):
        raise InputError(f"policy is {policy!r:.60}: give a Policy, such as Policy(odd_stop=OddStop.KEEP)")
    if not isinstance(key, str | None):
        raise InputError(f"key is {key!r:.60}: give the string that render_key made, or None")


def _steps(trajectory: object) -> Sequence[Step]:
    if not isinstance(trajectory, Sequence) or isinstance(trajectory, str | bytes):
        raise InputError(f"trajectory must be a sequence of steps, not {type(trajectory).__name__}")
    if not isinstance(trajectory, Trajectory):
        for position, step in enumerate(trajectory):
            if not isinstance(step, Step):
                raise InputError(f"trajectory[{position}] is a {type(step).__name__}: give a Step")
    return trajectory


def _listed(prompt: object) -> Sequence[Message]:
    if isinstance(prompt, Messages):
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes | Mapping):
        return tuple(prompt)  # the caller's own list may grow while the place is held
    raise InputError(f"prompt must be a list of messages, not {type(prompt).__name__}")


def _taken(prompt: Sequence[Message], start: int = 0) -> Sequence[dict[str, Any]]:
    """Return private copies of the messages from a place on."""
    return prompt[start:] if isinstance(prompt, Messages) else copied(prompt[start:], "prompt", start)


def _history(prompt: Sequence[Message], step: Step) -> Environment:
    """Return the messages before the turn that begin the prompt as system texts, and the last user's."""
    before = step.prompt
    asked = [before.asked] if before.asked >= 0 else []
    if isinstance(prompt, Messages):  # the very messages of the step
        return copied([*before.opening, *map(before.__getitem__, asked)], "prompt")
    return copied([prompt[place] for place in (*range(len(before.opening)), *asked)], "prompt")


def _unmatched(refusal: Refusal, prompt: Sequence[Message]) -> Refusal:
    """Say that media are the reason where they are; nothing matched, so every message is new."""
    if is_multimodal(_taken(prompt)):
        return Refusal(Reason.MULTIMODAL, "the prompt has media")
    return refusal


def _unfit(step: Step, message: Mapping[str, Any], seen: Sequence[Message], policy: Policy) -> Refusal | None:
    """Return why a matched step cannot be continued, before anything is asked."""
    if step.messages.multimodal or is_multimodal(seen):
        return Refusal(Reason.MULTIMODAL, "the conversation has media")
    if not step.completion or message["role"] != "assistant":
        return Refusal(Reason.NOT_ASSISTANT, f"the matched step ends with a {message['role']} message")
    if step.truncated and policy.truncated is Truncated.REFUSE:
        return Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short")
    return None
