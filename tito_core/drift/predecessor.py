"""Find the earlier call that a prompt continues: by its ids, by its messages, or by edited messages.

The forest knows the first two. The third is a guess, for a prompt with assistant's messages that no call
accounts for. Such a prompt continues the longest earlier call whose roles it repeats one by one. At least
half of that call's messages must stand unchanged at their positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import accumulate
from typing import Any

import attrs

from ..message import Messages
from ..normalization.canonical import normal_copy
from ..samples.call import StoredCall
from ..samples.forest import Forest
from ..samples.node import EdgeKind, Node


class By(Enum):
    """The evidence that a prompt continues a call."""

    IDS = "the prompt ids begin with its ids"
    MESSAGES = "the prompt begins with its messages, the prompt ids do not begin with its ids"
    ROLES = "the prompt begins with its messages, some of them edited"


@attrs.frozen
class Predecessor:
    """The call `name` that a prompt continues, and what shows it."""

    name: str
    by: By


def find_predecessors(forest: Forest) -> Mapping[str, Predecessor]:
    """Return the predecessor of each call that has one.

    >>> from tito_core.samples import StoredCall
    >>> from tito_core import Step
    >>> def call(order, prompt, prompt_ids):
    ...     answer = [{"role": "assistant", "content": str(order)}]
    ...     return StoredCall(name=str(order), order=order, step=Step(
    ...         prompt=prompt, completion=answer, prompt_ids=prompt_ids, completion_ids=[order, 2]))
    >>> user = {"role": "user", "content": "hi"}
    >>> one = call(1, [user], [7])
    >>> prompt = [*one.step.messages, user]
    >>> calls = [one, call(2, prompt, [7, 1, 2, 7]), call(3, prompt, [7, 9]),
    ...          call(4, [user, {"role": "assistant", "content": "edited"}, user], [7, 8])]
    >>> [(name, before.name, before.by.name) for name, before in find_predecessors(Forest.of(calls)).items()]
    [('2', '1', 'IDS'), ('3', '1', 'MESSAGES'), ('4', '1', 'ROLES')]
    """
    known = {node.name: _by_ids_or_messages(forest, node) for node in forest.nodes}
    predecessors = {name: before for name, before in known.items() if before is not None}
    unexplained = []
    for node in forest.nodes:
        before = predecessors.get(node.name)
        restated = 0 if before is None else forest[before.name].call.step.messages.length
        # Only an assistant's message beyond those of the predecessor is still to be explained.
        if any(message["role"] == "assistant" for message in node.call.step.prompt[restated:]):
            unexplained.append(node)
    if unexplained:
        index = RoleIndex(forest.calls)
        edited = {node.name: index.repeated_by(node.call) for node in unexplained}
        predecessors |= {name: Predecessor(call.name, By.ROLES) for name, call in edited.items() if call}
    return _without_cycles(
        {node.name: predecessors[node.name] for node in forest.nodes if node.name in predecessors}
    )


def _without_cycles(predecessors: Mapping[str, Predecessor]) -> Mapping[str, Predecessor]:
    """Leave out each edge that closes a cycle: ids may order two calls one way and messages the other."""
    on_cycle: set[str] = set()
    visited: set[str] = set()
    for start in predecessors:
        name, path = start, list[str]()
        while name in predecessors and name not in visited:
            visited.add(name)
            path.append(name)
            name = predecessors[name].name
        if name in path:
            on_cycle.add(path[-1])
    return {name: before for name, before in predecessors.items() if name not in on_cycle}


def _by_ids_or_messages(forest: Forest, node: Node) -> Predecessor | None:
    """Return what the forest says; a retry has the predecessor of the first call with its prompt."""
    first = forest[node.of] if node.kind is EdgeKind.RETRIES and node.of is not None else node
    if first.kind is EdgeKind.REWRITES and first.of is not None and first.of != node.name:
        return Predecessor(first.of, By.MESSAGES)
    return None if node.parent is None else Predecessor(node.parent, By.IDS)


class RoleIndex:
    """Calls by the roles of all their messages."""

    def __init__(self, calls: Iterable[StoredCall]) -> None:
        """Index the `calls` that ended with a message."""
        self._calls: dict[str, list[StoredCall]] = {}
        for call in calls:
            if call.step.completion:
                self._calls.setdefault(_role_prefixes(call.step.messages)[-1], []).append(call)

    def repeated_by(self, call: StoredCall) -> StoredCall | None:
        """Return the longest earlier call that the prompt of `call` repeats; of several the latest."""
        prompt = list(call.step.prompt)
        forms: list[Any] = list(map(normal_copy, prompt))
        # From the longest prefix down, so that the first match is the longest call.
        for roles in reversed(_role_prefixes(prompt)):
            earlier = [one for one in self._calls.get(roles, ()) if one.key < call.key]
            repeated = [one for one in earlier if _half_unchanged(one.step.messages, forms)]
            if repeated:
                return max(repeated, key=lambda one: one.key)
        return None


def _role_prefixes(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the roles of every prefix of some messages, as text."""
    return list(accumulate(f"{message['role']}\n" for message in messages))


def _half_unchanged(messages: Messages, forms: list[Any]) -> bool:
    """Return whether at least half of `messages` have the canonical form at their position."""
    unchanged = sum(normal_copy(ours) == form for ours, form in zip(messages, forms, strict=False))
    return bool(2 * unchanged >= messages.length)
