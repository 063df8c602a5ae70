"""Which earlier turn does a call's prompt restate? By ids, by messages, or by messages that somebody edited.

The forest knows the first two. The third is a guess with a rule: a prompt with assistant's messages that no
call accounts for restates the longest earlier call whose roles it repeats one by one and of whose messages
at least half stand where they stood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import accumulate
from typing import Any

import attrs

from ..message import Messages
from ..normalization.canonical import normal_copy
from .call import StoredCall
from .forest import Forest
from .lineage import roles
from .node import EdgeKind, Node


class By(Enum):
    """What shows that a prompt goes on from a call."""

    IDS = "its ids begin the prompt's"
    MESSAGES = "its messages begin the prompt's, its ids do not"
    ROLES = "its messages begin the prompt's, some of them edited"


@attrs.frozen
class Follow:
    """The call that a prompt goes on from."""

    of: str
    by: By


def followed(forest: Forest) -> Mapping[str, Follow]:
    """Return for each call that restates a turn the call that it goes on from.

    >>> from tito_core.samples import StoredCall
    >>> from tito_core import Step
    >>> def call(order, prompt, prompt_ids):
    ...     said = [{"role": "assistant", "content": str(order)}]
    ...     return StoredCall(name=str(order), order=order, step=Step(
    ...         prompt=prompt, completion=said, prompt_ids=prompt_ids, completion_ids=[order, 2]))
    >>> user = {"role": "user", "content": "hi"}
    >>> one = call(1, [user], [7])
    >>> told = [*one.step.messages, user]
    >>> calls = [one, call(2, told, [7, 1, 2, 7]), call(3, told, [7, 9]),
    ...          call(4, [user, {"role": "assistant", "content": "edited"}, user], [7, 8])]
    >>> [(name, follow.of, follow.by.name) for name, follow in followed(Forest.of(calls)).items()]
    [('2', '1', 'IDS'), ('3', '1', 'MESSAGES'), ('4', '1', 'ROLES')]
    """
    found = {node.name: follow for node in forest.nodes if (follow := _known(forest, node)) is not None}
    unexplained = [node for node in forest.nodes if _unexplained(forest, node, found.get(node.name))]
    if unexplained:
        repeated = Repeated(forest.calls)
        found |= {
            node.name: Follow(edited.name, By.ROLES)
            for node in unexplained
            if (edited := repeated.by(node.call)) is not None
        }
    return _acyclic({node.name: found[node.name] for node in forest.nodes if node.name in found})


def _acyclic(found: Mapping[str, Follow]) -> Mapping[str, Follow]:
    """Leave out what closes a circle: ids and messages may tell two stories."""
    kept: dict[str, Follow] = {}
    settled: set[str] = set()
    for name in found:
        path: list[str] = []
        while name in found and name not in settled:
            settled.add(name)
            path.append(name)
            name = found[name].of  # noqa: PLW2901  # the walk goes on from here
        closes = path[-1] if name in path else None
        kept |= {one: found[one] for one in path if one != closes}
    return {name: kept[name] for name in found if name in kept}


def _known(forest: Forest, node: Node) -> Follow | None:
    """Return what the forest says; a retry goes on from what the first of them does."""
    first = forest[node.of] if node.kind is EdgeKind.RETRIES and node.of is not None else node
    if first.kind is EdgeKind.REWRITES and first.of is not None and first.of != node.name:
        return Follow(first.of, By.MESSAGES)
    return None if node.parent is None else Follow(node.parent, By.IDS)


def _unexplained(forest: Forest, node: Node, follow: Follow | None) -> bool:
    """Tell whether the prompt has an assistant's message after those of the call that it goes on from."""
    known = 0 if follow is None else forest[follow.of].call.step.messages.length
    return "assistant" in roles(node.call.step.prompt, known)


class Repeated:
    """The calls by the roles of their messages."""

    def __init__(self, calls: Iterable[StoredCall]) -> None:
        """Hold calls that ended with a message."""
        self._calls: dict[str, list[StoredCall]] = {}
        for call in calls:
            if call.step.completion:
                self._calls.setdefault(_speakers(call.step.messages)[-1], []).append(call)

    def by(self, call: StoredCall) -> StoredCall | None:
        """Return the longest earlier call that the prompt repeats, of several the latest."""
        prompt = list(call.step.prompt)
        forms: list[Any] = list(map(normal_copy, prompt))
        for speakers in reversed(_speakers(prompt)):
            earlier = [one for one in self._calls.get(speakers, ()) if one.key < call.key]
            alike = [one for one in earlier if _half(one.step.messages, forms)]
            if alike:
                return max(alike, key=lambda one: one.key)
        return None


def _speakers(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the roles of every beginning of some messages, as text."""
    return list(accumulate(f"{message['role']}\n" for message in messages))


def _half(messages: Messages, forms: list[Any]) -> bool:
    """Tell whether at least half of the messages stand where they stood."""
    same = sum(normal_copy(ours) == form for ours, form in zip(messages, forms, strict=False))
    return bool(2 * same >= messages.length)
