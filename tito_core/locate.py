"""Which step does a prompt continue? The one with the longest proper message prefix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from .errors import InputError
from .match import NOTHING, Forgiven, PromptMatcher
from .message import Message, Messages, copied
from .normalization.clean import flattened
from .normalization.receipts import Forgiveness
from .normalization.tool_ids import restore_tool_ids
from .policy import STRICT, Policy, Truncated
from .questions import Questions
from .refusal import Reason, Refusal
from .seams.case import TurnKind
from .seams.profile import Profile
from .seams.prove import Environment, SampledTurn
from .seams.tail import ProvenTail, named_case, tail_questions
from .step import Step
from .trajectory import Trajectory, longest_first


@attrs.frozen
class Match:
    """A step whose messages begin the prompt, and what had to be forgiven to see it."""

    step: Step
    forgiven: Forgiven


def find(
    steps: Sequence[Step], prompt: Sequence[Message], forgive: Forgiven, key: str | None
) -> Match | Refusal:
    """Return the longest match; a refusal where there is none to use.

    Of equally long ones the one that is restated with the fewest differences, and of those the latest.
    """
    longest = 0
    best: Match | None = None
    for match in matches(steps, prompt, forgive):
        length = match.step.messages.length
        if length < longest:
            break
        longest = length
        if match.step.key == key and (best is None or len(match.forgiven) < len(best.forgiven)):
            best = match
        if best is not None and not best.forgiven:
            break  # before another step is compared
    if best is not None:
        return best if longest < len(prompt) else _nothing_new(longest)
    if longest:
        return Refusal(Reason.RENDERED_DIFFERENTLY, f"the step of {longest} messages has another key")
    return Refusal(Reason.NO_PREFIX, f"none of {len(steps)} steps begins these {len(prompt)} messages")


def _nothing_new(length: int) -> Refusal:
    return Refusal(Reason.NOTHING_NEW, f"a step ends with all {length} messages")


def matches(steps: Sequence[Step], prompt: Sequence[Message], forgive: Forgiven = NOTHING) -> Iterator[Match]:
    """Yield every step whose messages begin the prompt, longest first, and of equals the latest first."""
    wanted = PromptMatcher(prompt, forgive)
    for step in longest_first(steps, len(prompt)):
        forgiven = wanted.fits(step.messages)
        if forgiven is not None:
            yield Match(step, forgiven)


@attrs.frozen
class Located:
    """A place where a prompt can go on by ids, if what the template writes there can be proven."""

    match: Match
    messages: Messages
    """The conversation as the prompt tells it; where only the order of keys differs, as the step has it."""
    policy: Policy
    key: str | None
    """What the prompt is rendered with."""
    _turn: SampledTurn
    _rendered: Environment
    """What comes after the turn, as it is rendered."""

    @property
    def turn(self) -> SampledTurn:
        """The sampled turn before the place, as the prompt restates it; a copy."""
        history = copied(self._turn.history, "history")
        return attrs.evolve(self._turn, message=self.messages[self._turn.place], history=history)

    @property
    def environment(self) -> Environment:
        """Copies of the prompt's messages after the turn."""
        return tuple(self.messages[self._turn.place + 1 :])

    @property
    def case(self) -> tuple[TurnKind, tuple[str, ...]] | None:
        """Which case of a profile this is, None where it has no name.

        A caller whose profile does not know the case may have it certified (`certifying`), once.
        """
        return named_case(self._turn, self._rendered)

    def tail_questions(
        self, suffix: tuple[int, ...], profile: Profile | None
    ) -> Questions[ProvenTail | Refusal]:
        """Ask for what the template writes after the turn; a profile of another rendering is none."""
        fits = profile is not None and profile.key in {None, self.key}
        return tail_questions(self._turn, self._rendered, suffix, profile if fits else None)


def locate(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    *,
    policy: Policy = STRICT,
    key: str | None = None,
) -> Located | Refusal:
    """Return where the prompt continues a step, or why it cannot; nothing is asked.

    The arguments are those of `stitch`, and `continuing` goes on from there. Raises `InputError` for
    malformed input.

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
    messages = _conversation(match, prompt)
    start = match.step.messages.length
    message, environment = messages.peek(start - 1), messages.peek(slice(start, None))
    refusal = _unfit(match.step, messages, message, policy)
    if refusal is not None:
        return refusal
    return Located(match, messages, policy, key, _turn(match.step, messages, message), flattened(environment))


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
    if type(prompt) is list or isinstance(prompt, Messages):
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes | Mapping):
        return list(prompt)  # compared and cut as lists are
    raise InputError(f"prompt must be a list of messages, not {type(prompt).__name__}")


def _conversation(match: Match, prompt: Sequence[Message]) -> Messages:
    """Return the conversation as the prompt tells it; what is told as it was is shared."""
    messages = match.step.messages
    if Forgiveness.RENAMED_TOOL_IDS in match.forgiven:
        return Messages.of(restore_tool_ids(messages, prompt))
    if match.forgiven or isinstance(prompt, Messages):
        return Messages.of(prompt)
    return messages.then(prompt[messages.length :])


def _turn(step: Step, told: Messages, message: dict[str, Any]) -> SampledTurn:
    """Return the step's turn as it is told, with what stood before it that a template may read."""
    place, before = step.messages.length - 1, step.prompt
    asked = () if before.asked < 0 else (told.peek(before.asked),)
    return SampledTurn(
        message=message,
        after=told.peek(place - 1)["role"] if place else "user",
        history=flattened((*told.opening[: len(before.opening)], *asked)),
        stop=step.stop,
        prompt=told,
        place=place,
    )


def _unmatched(refusal: Refusal, prompt: Sequence[Message]) -> Refusal:
    """Say that media are the reason where they are; nothing matched, so every message is new."""
    if Messages.of(prompt).multimodal:
        return Refusal(Reason.MULTIMODAL, "the prompt has media")
    return refusal


def _unfit(step: Step, told: Messages, message: Message, policy: Policy) -> Refusal | None:
    """Return why a matched step cannot be continued, before anything is asked."""
    if step.messages.multimodal or told.multimodal:
        return Refusal(Reason.MULTIMODAL, "the conversation has media")
    if not step.completion or message["role"] != "assistant":
        return Refusal(Reason.NOT_ASSISTANT, f"the matched step ends with a {message['role']} message")
    if step.truncated and policy.truncated is Truncated.REFUSE:
        return Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short")
    return None
