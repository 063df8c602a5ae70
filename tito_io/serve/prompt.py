"""A prompt as it is kept, read at the cost of what is new in it.

Clients restate the whole conversation with every request. What begins like the request before, byte for byte,
was taken through the door and matched then; only the rest is looked at. Whatever is not so simple, a retry, a
branch, an edit, is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core import Forgiveness, Message, Refusal, Trajectory
from tito_core.locate import find
from tito_core.message import is_multimodal
from tito_core.normalization.compare import same
from tito_core.normalization.tool_ids import restore_tool_ids

from .client_noise import Door
from .commit import Commit


@attrs.frozen(kw_only=True)
class Prompt:
    """A conversation that is to be gone on from."""

    said: tuple[Message, ...]
    """As it came."""
    messages: list[Message]
    """As it is kept."""
    tools: list[Mapping[str, Any]]
    taken: Mapping[str, int]
    """What the door took off what is new, by the names of its rules."""
    turns: int
    """Messages of the assistant."""
    texts: bool
    """Whether there is nothing but texts in it: then `==` tells whether another says the same, which it does
    not where True equals 1."""
    media: bool
    before: Heard | None = None
    """The prompt that it begins with."""

    @property
    def new(self) -> Sequence[Message]:
        """The messages after those of the prompt before."""
        return self.messages[0 if self.before is None else len(self.before.prompt.messages) :]


@attrs.frozen
class Heard:
    """A prompt that was answered."""

    prompt: Prompt
    answer: str
    """The commit of the turn."""
    forgiven: tuple[str, ...]
    """What did not count between the prompt's history and the session's."""


@attrs.frozen
class Met:
    """A prompt for the kernel, and what was forgiven to know its history."""

    prompt: Sequence[Message]
    forgiven: tuple[str, ...] = ()


def read(
    door: Door, said: Sequence[Message], tools: Sequence[Mapping[str, Any]], heard: Heard | None
) -> Prompt:
    """Return a prompt as it is kept; `heard` is the one that the session answered last."""
    before = heard if heard is not None and _begins(said, heard.prompt) else None
    old = None if before is None else before.prompt
    entered = door.enter(said[0 if old is None else len(old.said) :], tools)
    new = entered.messages
    return Prompt(
        said=tuple(said),
        messages=[*([] if old is None else old.messages), *new],
        tools=entered.tools,
        taken=entered.taken,
        turns=sum(map(_is_assistant, new)) + (0 if old is None else old.turns),
        texts=all(map(_is_text, new)) and (old is None or old.texts),
        media=is_multimodal(new) or (old is not None and old.media),
        before=None if before is None else attrs.evolve(before, prompt=_without_history(before.prompt)),
    )


def _begins(said: Sequence[Message], older: Prompt) -> bool:
    size = len(older.said)
    return older.texts and len(said) > size and tuple(said[:size]) == older.said


def _without_history(prompt: Prompt) -> Prompt:
    """Return a prompt that holds none before itself: they must not make a chain."""
    return attrs.evolve(prompt, before=None)


def met(
    prompt: Prompt,
    steps: Trajectory,
    commits: Mapping[str, Commit],
    key: str,
    forgive: frozenset[Forgiveness],
) -> Met:
    """Match a prompt; what was met is put in the place of what was restated.

    The kernel then knows the history by identity, and compares nothing again.
    """
    if prompt.media:  # it may stand in what was restated, which the kernel then must see
        return Met(prompt.messages)
    again = _answered(prompt, commits, key, forgive)
    if again is not None:
        return again
    found = find(steps, prompt.messages, forgive, key)
    if isinstance(found, Refusal):
        return Met(prompt.messages)
    known, new = found.step.messages, prompt.messages
    if Forgiveness.RENAMED_TOOL_IDS in found.forgiven:  # results too must name the calls as they are kept
        new = list(restore_tool_ids(known, new))
    return Met(known.then(new[known.length :]), _names(found.forgiven))


def _answered(
    prompt: Prompt, commits: Mapping[str, Commit], key: str, forgive: frozenset[Forgiveness]
) -> Met | None:
    """Match a prompt that restates the one before and its answer; None where it is not so simple.

    With another answer among what is new, a longer turn may fit; renamings must see every message.
    """
    heard, new = prompt.before, prompt.new
    commit = None if heard is None else commits.get(heard.answer)
    simple = len(new) > 1 and [_is_assistant(one) for one in new].count(True) == 1
    if heard is None or commit is None or not simple or Forgiveness.RENAMED_TOOL_IDS in forgive:
        return None
    forgiven = same(commit.step.completion[0], new[0], forgive) if commit.step.key == key else None
    if forgiven is None:
        return None
    prompted = commit.step.messages.then(new[1:])
    return Met(prompted, tuple(sorted({*heard.forgiven, *_names(forgiven)})))


def _names(forgiven: frozenset[Forgiveness]) -> tuple[str, ...]:
    return tuple(sorted(one.name for one in forgiven))


def _is_assistant(message: Message) -> bool:
    return message.get("role") == "assistant"


def _is_text(value: Any) -> bool:
    """Tell whether nothing below is a number or a truth value."""
    if isinstance(value, Mapping):
        return all(map(_is_text, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_text, value))
    return value is None or type(value) is str
