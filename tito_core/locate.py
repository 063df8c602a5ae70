"""Find the step that a prompt continues, without rendering or tokenizing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs

from .checks import require
from .errors import InputError
from .ids import Ids
from .match import Forgiven, PromptMatcher
from .media.ranges import Media, PlaceholderIds, Placeholders
from .message import Message, Messages, called_ids, copied
from .normalization.clean import flattened
from .normalization.media import Medium, media_of
from .normalization.receipts import Forgiveness
from .normalization.tool_ids import restore_tool_ids
from .policy import STRICT, Policy, Truncated
from .questions import Questions
from .refusal import Reason, Refusal
from .seams.close import END
from .seams.keys import differing_keys, read_key_questions, with_keys
from .seams.placeholders import unplaced
from .seams.prove import Proof
from .seams.tail import ProfileLike, tail_questions
from .seams.turn import Environment, SampledTurn
from .step import Step
from .trajectory import Trajectory, longest_first


@attrs.frozen
class Match:
    """A step whose messages begin the prompt.

    Attributes:
        step: The step.
        forgiven: Differences between its messages and the prompt's that did not count.
    """

    step: Step
    forgiven: Forgiven


@attrs.frozen
class Located:
    """The step that a prompt continues. Whether it can be stitched depends on the template.

    Attributes:
        match: The step, and the differences that were forgiven.
        messages: The conversation as the prompt has it, or as the step has it if only key order differs.
        policy: The caller's choices.
        key: What the prompt is rendered with.
        turn: The sampled turn before the new messages; a copy.
        environment: The prompt's messages after the turn; copies.
    """

    match: Match
    messages: Messages
    policy: Policy
    key: str | None
    _turn: SampledTurn
    _rendered: Environment
    """The environment as it is rendered."""

    @property
    def turn(self) -> SampledTurn:
        """The sampled turn before the new messages, as the prompt restates it; a copy."""
        history = copied(self._turn.history, "history")
        return attrs.evolve(self._turn, message=self.messages[self._turn.place], history=history)

    @property
    def placeholders(self) -> Placeholders | None:
        """The template's placeholders for media; None without media in the conversation."""
        return self._turn.placeholders

    @property
    def environment(self) -> Environment:
        """Copies of the prompt's messages after the turn."""
        return tuple(self.messages[self._turn.place + 1 :])

    def tail_questions(
        self,
        suffix: tuple[int, ...],
        profile: ProfileLike | None,
        stops: tuple[int, ...] = (),
        words: tuple[str, ...] = (),
    ) -> Questions[Proof | Refusal]:
        """Ask for what the template writes after the turn. A profile of another rendering is ignored.

        A message that differs in a key which the template reads is another message, so that nothing is
        continued.
        """
        turn = self._turn
        if Forgiveness.OTHER_KEYS in self.match.forgiven:
            ours, theirs = self.match.step.messages.parts(), self.messages.parts()
            key = yield from read_key_questions(zip(*map(chain.from_iterable, (ours, theirs)), strict=False))
            if key is not None:
                return Refusal(
                    Reason.KEY_DIFFERS, f"the template may read {key!r}, in which a message differs"
                )
            # Shown to be the same to the template; and profiles know turns without further keys.
            stored = self.match.step.messages.peek(turn.place)
            message = with_keys(turn.message, stored, differing_keys(stored, turn.message))
            turn = attrs.evolve(turn, message=message)
        fits = profile is not None and profile.key in {None, self.key}
        known = profile if fits else None
        asking = tail_questions(turn, self._rendered, suffix, known, stops=stops, words=words)
        return (yield from asking)


def locate(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    media: PlaceholderIds | None = None,
) -> Located | Refusal:
    """Return the step that `prompt` continues, or why none can be used; nothing is asked.

    `trajectory`, `prompt`, `policy`, `key` and `media` are those of `try_stitch`. `continue_questions` takes
    the result. Raises `InputError` for malformed input.

    >>> step = Step(prompt=[{"role": "user", "content": "A"}], prompt_ids=[1, 4, 65, 2, 1, 9],
    ...             completion=[{"role": "assistant", "content": "xy"}], completion_ids=[777, 2])
    >>> located = locate([step], [*step.messages, {"role": "user", "content": "B"}])
    >>> located.match.step is step, located.environment
    (True, ({'role': 'user', 'content': 'B'},))
    >>> locate([step], [{"role": "user", "content": "B"}]).reason.name
    'NO_PREFIX'
    """
    require(policy, Policy, "policy", "a Policy, such as Policy(odd_stop=OddStop.KEEP)")
    require(key, (str, type(None)), "key", "the string that render_key made, or None")
    placeholders = Placeholders.of(media)
    prompt = _listed(prompt)
    match = find(_steps(trajectory), prompt, policy.forgive, key, policy.further_keys)
    if isinstance(match, Refusal):
        unknown = placeholders is None and Messages.of(prompt).multimodal
        return Refusal(Reason.MULTIMODAL, "the prompt has media") if unknown else match
    messages = _conversation(match, prompt)
    start = match.step.messages.length
    message = messages.peek(start - 1)
    environment = tuple(map(messages.peek, range(start, messages.length)))
    media_after = media_of(environment) if messages.multimodal else ()
    refusal = _unfit(match.step, policy)
    if refusal is None and messages.multimodal:
        refusal = _unfit_media(match.step, media_after, placeholders)
    if refusal is not None:
        return refusal
    rendered = flattened(environment)
    before, said = match.step.prompt, match.step.completion
    if len(said) > 1:  # those before the turn are history, too
        before = before.then(said[:-1])
    turn = turn_after(before, message, rendered, messages, start - 1, step=match.step)
    if messages.multimodal:
        shown = len(match.step.media)
        turn = attrs.evolve(turn, media=media_after, placeholders=placeholders, shown=shown)
    return Located(match, messages, policy, key, turn, rendered)


def _steps(trajectory: object) -> Sequence[Step]:
    if not isinstance(trajectory, Sequence) or isinstance(trajectory, str | bytes):
        raise InputError(f"trajectory must be a sequence of steps, not {type(trajectory).__name__}")
    # Counting types in C takes a fifth of a loop; the loop is for subclasses, and for naming what is wrong.
    if not isinstance(trajectory, Trajectory) and [*map(type, trajectory)].count(Step) < len(trajectory):
        for position, step in enumerate(trajectory):
            if not isinstance(step, Step):
                raise InputError(f"trajectory[{position}] is a {type(step).__name__}: give a Step")
    return trajectory


def _listed(prompt: object) -> Sequence[Message]:
    if type(prompt) is list or isinstance(prompt, Messages):
        return prompt
    if isinstance(prompt, Sequence) and not isinstance(prompt, str | bytes | Mapping):
        return list(prompt)  # other sequences, such as a deque, cannot be sliced
    raise InputError(f"prompt must be a list of messages, not {type(prompt).__name__}")


def find(
    steps: Sequence[Step],
    prompt: Sequence[Message],
    forgive: Forgiven,
    key: str | None,
    further_keys: frozenset[str] = frozenset(),
) -> Match | Refusal:
    """Return the step with the longest prefix match, or a refusal if no step can be used.

    Steps that do not end with an assistant's turn are never used. Of equally long steps, the one with the
    fewest differences is used; of those, the latest.
    """
    longest = 0
    best: Match | None = None
    for match in matches(steps, prompt, forgive, further_keys, answered(prompt)):
        length = match.step.messages.length
        if length < longest:
            break
        if not match.step.ends_with_turn:
            continue
        longest = length
        if match.step.key == key and (best is None or len(match.forgiven) < len(best.forgiven)):
            best = match
        if best is not None and not best.forgiven:
            break  # no step can match better, so that none needs to be compared
    if best is None and longest:
        return Refusal(Reason.RENDERED_DIFFERENTLY, f"the step of {longest} messages has another key")
    if best is None:
        others = [step for step in steps if not step.ends_with_turn]
        for match in matches(others, prompt, forgive, further_keys, len(prompt)):
            role = match.step.messages[-1]["role"]
            return Refusal(Reason.NOT_ASSISTANT, f"the matched step ends with a {role} message")
        return Refusal(Reason.NO_PREFIX, f"none of {len(steps)} steps begins these {len(prompt)} messages")
    if longest == len(prompt):
        return Refusal(Reason.NOTHING_NEW, f"a step ends with all {longest} messages")
    return best


def answered(prompt: Sequence[Message]) -> int:
    """Return how many messages of a prompt there are up to its last answer: the most that a step can have.

    A message that is an object of a client library may be an answer.

    >>> answered([{"role": "user"}, {"role": "assistant"}, {"role": "tool"}])
    2
    """
    peek = prompt.peek if isinstance(prompt, Messages) else prompt.__getitem__
    for position in range(len(prompt) - 1, -1, -1):
        message: Any = peek(position)  # callers may pass objects of client libraries
        # By type first: a look at an abstract class takes longer than all else here.
        known = type(message) is dict or isinstance(message, Mapping)
        if not known or message.get("role") == "assistant":
            return position + 1
    return 0


def matches(
    steps: Sequence[Step],
    prompt: Sequence[Message],
    forgive: Forgiven,
    further_keys: frozenset[str],
    limit: int,
) -> Iterator[Match]:
    """Yield steps of at most `limit` messages that begin the prompt: longest first, then the latest first."""
    matcher = PromptMatcher(prompt, forgive, further_keys)
    for step in longest_first(steps, limit):
        forgiven = matcher.fits(step.messages)
        if forgiven is not None:
            yield Match(step, forgiven)


def _conversation(match: Match, prompt: Sequence[Message]) -> Messages:
    """Return the conversation as the prompt has it, sharing the step's messages where they are equal."""
    messages = match.step.messages
    if Forgiveness.RENAMED_TOOL_IDS in match.forgiven:
        return Messages.of(restore_tool_ids(messages, prompt))
    if match.forgiven or isinstance(prompt, Messages):
        return Messages.of(prompt)
    return messages.then(prompt[messages.length :])


def turn_after(
    before: Messages,
    message: dict[str, Any],
    environment: Environment = (),
    conversation: Messages | None = None,
    place: int | None = None,
    *,
    step: Step | None = None,
) -> SampledTurn:
    """Return the turn `message` with those messages of the history that a template may read.

    `before` are the messages of its prompt, `environment` those that follow it, `conversation` all of them as
    the client has them now, and `place` the position of the turn in it. `step` is the call that sampled it.
    """
    messages = before if conversation is None else conversation
    index = before.length if place is None else place
    last = (place for place in (before.instructed, before.asked) if place >= len(before.opening))
    return SampledTurn(
        message=message,
        after=messages.peek(index - 1)["role"] if index else "user",
        history=flattened((*messages.opening[: len(before.opening)], *map(messages.peek, last))),
        reused=tuple(one for one in called_ids(message, environment) if before.calls((one,))),
        switched=before.switched,
        earlier=before,
        stop=None if step is None else step.stop,
        end=() if step is None else tuple(step.completion_ids[-END:]),
        prompt=messages,
        place=index,
    )


def _unfit(step: Step, policy: Policy) -> Refusal | None:
    """Return why a matched step cannot be continued, None if it can."""
    if step.prompt and not step.prompt_ids:
        return Refusal(Reason.NO_IDS, f"the matched step has {len(step.prompt)} prompt messages and no ids")
    if step.truncated and policy.truncated is Truncated.REFUSE:
        return Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short")
    return None


def _unfit_media(step: Step, media: tuple[Medium, ...], placeholders: Placeholders | None) -> Refusal | None:
    """Return why a conversation with media cannot be continued, None if it can."""
    if placeholders is None:
        return Refusal(Reason.MULTIMODAL, "the conversation has media")
    shown = step.messages.media
    if len(step.media) != shown:
        return Refusal(
            Reason.MULTIMODAL, f"the step has the ranges of {len(step.media)} media, its messages {shown}"
        )
    return unplaced(media, placeholders) or strayed(step.ids, step.media, placeholders)


def strayed(ids: Ids, media: Media, placeholders: Placeholders) -> Refusal | None:
    """Return a refusal if a placeholder stands where no medium is: an engine would put a medium there."""
    place = placeholders.stray(ids, media)
    return None if place is None else Refusal(Reason.PLACEHOLDERS, f"no medium stands at id {place}")
