"""Read and match a prompt at the cost of what is new in it.

Clients send the whole conversation with every request. If a request begins with the messages of the one
before it, that part was cleaned and matched then, and only the rest is read. Any other request (a retry, a
branch, an edit) is read from its beginning.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from tito_core import Forgiveness, Message, Refusal, Trajectory
from tito_core.locate import find
from tito_core.message import Messages
from tito_core.normalization.compare import same
from tito_core.normalization.tool_ids import restore_tool_ids

from .client_noise import NoiseFilter, NoiseRule
from .commit import Commit
from .text_echo import undone

TEXT_ECHO = NoiseRule.TEXT_ECHO.name
OTHER_KEYS = Forgiveness.OTHER_KEYS.name


@attrs.frozen(kw_only=True)
class SessionPrompt:
    """The conversation of one request.

    Attributes:
        received: The messages as they came.
        messages: The messages without client noise.
        tools: The tools without client noise.
        removed: What the noise filter removed from the new messages, by the names of its rules.
        turns: Number of assistant messages.
        only_texts: Whether the messages hold texts alone. Then `==` compares them exactly; with numbers it
            does not, because True equals 1.
        previous: The prompt that this one begins with.
    """

    received: tuple[Message, ...] = ()
    messages: list[Message] = attrs.field(factory=list)
    tools: list[Mapping[str, Any]] = attrs.field(factory=list)
    removed: Mapping[str, int] = attrs.field(factory=dict)
    turns: int = 0
    only_texts: bool = True
    previous: AnsweredPrompt | None = None

    @property
    def new(self) -> Sequence[Message]:
        """The messages after those of the previous prompt."""
        return self.messages[0 if self.previous is None else len(self.previous.prompt.messages) :]


@attrs.frozen
class AnsweredPrompt:
    """A prompt with its answer.

    Attributes:
        prompt: The prompt.
        commit: The name of the answer's commit.
        forgiven: Differences between the prompt's history and the session's that were ignored.
    """

    prompt: SessionPrompt
    commit: str
    forgiven: tuple[str, ...]


@attrs.frozen
class MatchedPrompt:
    """A prompt whose known history is the session's own messages.

    Attributes:
        messages: What the kernel is given.
        forgiven: Differences that were ignored to recognize the history.
        changed: The messages of the session, each with the one that came back, where keys beside a message's
            identity may differ: the prompt has another history if the template reads one of them.
    """

    messages: Sequence[Message]
    forgiven: tuple[str, ...] = ()
    changed: tuple[tuple[Message, Message], ...] = ()


def read_prompt(
    noise: NoiseFilter,
    received: Sequence[Message],
    tools: Sequence[Mapping[str, Any]],
    last: AnsweredPrompt | None,
) -> SessionPrompt:
    """Return a prompt without client noise; `last` is the one that the session answered last."""
    previous = last if last is not None and _begins(received, last.prompt) else None
    # Without its own previous one: else each prompt would keep all earlier prompts of the session.
    old = SessionPrompt() if previous is None else attrs.evolve(previous.prompt, previous=None)
    clean = noise.clean(received[len(old.received) :], tools)
    new = clean.messages
    return SessionPrompt(
        received=tuple(received),
        messages=[*old.messages, *new],
        tools=clean.tools,
        removed=clean.removed,
        turns=old.turns + sum(map(_is_assistant, new)),
        only_texts=old.only_texts and all(map(_is_text, new)),
        previous=None if previous is None else attrs.evolve(previous, prompt=old),
    )


def _begins(received: Sequence[Message], older: SessionPrompt) -> bool:
    size = len(older.received)
    return older.only_texts and len(received) > size and tuple(received[:size]) == older.received


@attrs.frozen
class PromptMatcher:
    """Finds prompts' histories in a session, and puts the session's own messages in their place.

    The kernel then recognizes the history by identity, and compares nothing again. A turn that is not found
    as it came is looked for as text, by the `stops` of the request, and under other ids of tool calls.

    Attributes:
        steps: The session's steps.
        commits: Its turns by name.
        key: What the prompts are rendered with.
        forgive: Differences that are ignored.
        stops: The stop strings of the request; None to look for no turn as text.
    """

    steps: Trajectory
    commits: Mapping[str, Commit]
    key: str
    forgive: frozenset[Forgiveness]
    stops: Sequence[str] | None = None

    @property
    def _optional(self) -> frozenset[Forgiveness]:
        """What can be ignored without comparing each message, as is needed under other ids of tool calls."""
        return self.forgive - {Forgiveness.RENAMED_TOOL_IDS}

    def match(self, prompt: SessionPrompt) -> MatchedPrompt:
        """Return a prompt with what is known of its history."""
        matched = self._answered(prompt)
        if matched is not None:
            return matched
        turns = [place for place, message in enumerate(prompt.messages) if _is_assistant(message)]
        known, forgiven, read = Messages.of(()), tuple[str, ...](), prompt.messages

        def found() -> int:
            return known.length

        for messages, names, optional in self._readings(prompt.messages, found):
            located = find(self.steps, messages, optional, self.key)
            if not isinstance(located, Refusal) and located.step.messages.length > known.length:
                known, read = located.step.messages, list(messages)
                forgiven = tuple(sorted({*names, *_names(located.forgiven)}))
            if not turns or known.length > turns[-1]:
                break
        if not known:
            return MatchedPrompt(prompt.messages)
        new = prompt.messages
        if Forgiveness.RENAMED_TOOL_IDS.name in forgiven:
            new = list(restore_tool_ids(known, new))  # new results must name the calls as the session does
        changed = tuple(zip(known, read, strict=False)) if OTHER_KEYS in forgiven else ()
        return MatchedPrompt(known.then(new[known.length :]), forgiven, changed)

    def _readings(
        self, messages: Sequence[Message], found: Callable[[], int]
    ) -> Iterator[tuple[Sequence[Message], tuple[str, ...], frozenset[Forgiveness]]]:
        """Yield the ways to read a history, the cheapest first: messages, receipts, and what to forgive.

        What was `found` as it came, a number of messages, stays so: a turn may end with a stop string that
        only a later request has.
        """
        yield messages, (), self._optional
        same = messages[: found()]
        later = messages[len(same) :]
        echoed = [*same, *map(self._undone, later)]
        if any(map(operator.is_not, echoed, messages)):
            yield echoed, (TEXT_ECHO,), self._optional
        if self._optional != self.forgive:
            yield messages, (), self.forgive

    def _undone(self, message: Message) -> Message:
        return message if self.stops is None else undone(message, self.stops)

    def _answered(self, prompt: SessionPrompt) -> MatchedPrompt | None:
        """Match a prompt that repeats the previous one and its answer; None for any other.

        With a second assistant message among the new ones, a longer turn may match; and to undo renamings of
        tool ids, every message must be compared.
        """
        previous, new = prompt.previous, prompt.new
        commit = None if previous is None else self.commits.get(previous.commit)
        simple = len(new) > 1 and sum(map(_is_assistant, new)) == 1
        if previous is None or commit is None or not simple or commit.step.key != self.key:
            return None
        if Forgiveness.RENAMED_TOOL_IDS.name in previous.forgiven:
            return None
        turn = commit.step.completion[0]
        names = self._same_turn(turn, new[0])
        if names is None or (names and not self._alone(commit)):
            return None
        # Of older messages it was asked when they came back for the first time.
        changed = ((turn, new[0]),) if OTHER_KEYS in names else ()
        forgiven = tuple(sorted({*previous.forgiven, *names}))
        return MatchedPrompt(commit.step.messages.then(new[1:]), forgiven, changed)

    def _alone(self, commit: Commit) -> bool:
        """Return whether no other turn is as long: a client might repeat that one, with fewer differences."""
        length = commit.step.messages.length
        return sum(one.step.messages.length == length for one in self.commits.values()) == 1

    def _same_turn(self, ours: Message, theirs: Message) -> tuple[str, ...] | None:
        """Return what was forgiven to recognize a turn, as it came or as text; None where it is another."""
        forgiven = same(ours, theirs, self._optional)
        if forgiven is not None:
            return _names(forgiven)
        echoed = self._undone(theirs)
        forgiven = None if echoed is theirs else same(ours, echoed, self._optional)
        return None if forgiven is None else (TEXT_ECHO, *_names(forgiven))


def _names(forgiven: frozenset[Forgiveness]) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in forgiven))


def _is_assistant(message: Message) -> bool:
    return message.get("role") == "assistant"


def _is_text(value: Any) -> bool:
    """Return whether a JSON value holds neither numbers nor truth values."""
    if isinstance(value, Mapping):
        return all(map(_is_text, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_text, value))
    return value is None or type(value) is str
