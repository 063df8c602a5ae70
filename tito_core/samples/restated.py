"""Find earlier calls whose messages a prompt restates: a history rendered again, shortened or summarised.

Ids decide what a call continues. Messages only explain a call whose prompt has an assistant's message that
its ids do not account for. They are compared in canonical form (`normalization.canonical`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

from ..message import Messages
from ..normalization.canonical import Canonical, normal_copy, sole_text
from .call import StoredCall
from .node import NO_CANDIDATES, Candidates

MIN_LINE = 16
"""Characters that a line of an answer needs, so that finding it again is no accident."""


class MessageTrie:
    """All prefixes of some calls' messages, each a number, by canonical form."""

    def __init__(self, calls: Iterable[StoredCall]) -> None:
        """Add the messages of `calls`, sorted by key."""
        self._children: dict[tuple[int, int], int] = {}
        self._forms: dict[Any, int] = {}
        self._parents: list[int] = [0]
        self._known: dict[int, tuple[Messages, int]] = {}
        self._ends: dict[int, Candidates] = {}
        for call in calls:
            place = self._place(call.step.messages)
            if answer_of(call) is not None:
                self._ends.setdefault(place, Candidates()).add(call)
        # For each prefix the longest one of its prefixes, or itself, where a call ends; 0 without any.
        self._nearest = [0]
        for place in range(1, len(self._parents)):
            self._nearest.append(place if place in self._ends else self._nearest[self._parents[place]])

    def longest(self, call: StoredCall) -> Candidates:
        """Return the calls with the most messages whose messages all begin the prompt of `call`."""
        return self._ends.get(self._nearest[self._place(call.step.prompt)], NO_CANDIDATES)

    def _place(self, messages: Messages) -> int:
        missing, place = [], 0
        for link in messages.links():
            if id(link) in self._known:
                place = self._known[id(link)][1]
                break
            missing.append(link)
        for link in reversed(missing):
            for message in link.part:
                form = self._form(message, plain=link.texts)
                child = self._children.setdefault((place, form), len(self._parents))
                if child == len(self._parents):
                    self._parents.append(place)
                place = child
            self._known[id(link)] = link, place
        return place

    def _form(self, message: dict[str, Any], *, plain: bool) -> int:
        """Return the number of a message's canonical form; a `plain` message has only texts in it."""
        if not plain:
            return self._number(normal_copy(message))
        # Making the form is the dear part, so that messages spelled alike share it.
        spelling = _hashable(message)
        if spelling not in self._forms:
            self._forms[spelling] = self._number(normal_copy(message))
        return self._forms[spelling]

    def _number(self, form: Canonical) -> int:
        return self._forms.setdefault(form, len(self._forms))


def _hashable(value: Any) -> Any:
    """Return texts in lists and mappings as tuples. Not for numbers: there `1 == True` would be a match."""
    if isinstance(value, dict):
        return ("object", *((key, _hashable(item)) for key, item in value.items()))
    return ("array", *map(_hashable, value)) if isinstance(value, list) else value


class TurnIndex:
    """Last turns and answers of calls, to be found again in a shorter prompt.

    A prompt restates a call in either of two cases. It has the call's question and answer next to each
    other. Or a message that is not an assistant's contains the whole answer, such as a summary that the
    model wrote. The answer's first or last line is then on a line of its own.
    """

    def __init__(self, calls: Iterable[StoredCall]) -> None:
        """Index `calls` by their last turn and by the outer lines of their answer."""
        self._turns: dict[tuple[Canonical, Canonical], list[StoredCall]] = {}
        self._lines: dict[str, list[tuple[StoredCall, str]]] = {}
        for call in calls:
            answer = answer_of(call)
            if answer is None:
                continue
            if len(call.step.prompt) and len(call.step.completion) == 1:
                turn = normal_copy(call.step.prompt[-1]), normal_copy(answer)
                self._turns.setdefault(turn, []).append(call)
            text = "\n".join(texts_of(answer)).strip()
            for line in outer_lines(text):
                self._lines.setdefault(line, []).append((call, text))

    def compacted(self, call: StoredCall) -> StoredCall | None:
        """Return the latest earlier call that the prompt of `call` restates in fewer messages."""
        prompt = list(call.step.prompt)
        opening = list(map(normal_copy, call.step.prompt.opening))
        turns = pairwise(map(normal_copy, prompt))
        restated = chain.from_iterable(self._turns.get(turn, ()) for turn in turns)
        fitting = [
            other
            for other in (*restated, *self._quoted_in(prompt))
            if other.key < call.key
            and len(prompt) < len(other.step.messages)
            and list(map(normal_copy, other.step.messages.opening)) == opening
        ]
        return max(fitting, key=lambda other: other.key, default=None)

    def _quoted_in(self, prompt: Sequence[dict[str, Any]]) -> Iterator[StoredCall]:
        """Look up each line as an outer line of an answer, then check that the whole answer is there."""
        for message in prompt:
            if message["role"] == "assistant":
                continue
            for text in texts_of(message):
                for line in dict.fromkeys(map(str.strip, text.splitlines())):
                    yield from (call for call, answer in self._lines.get(line, ()) if answer in text)


def answer_of(call: StoredCall) -> dict[str, Any] | None:
    """Return the assistant's message that a call ends with, or None."""
    last = call.step.completion[-1] if call.step.completion else None
    return last if last is not None and last["role"] == "assistant" else None


def outer_lines(text: str) -> set[str]:
    r"""Return the first and last line of an answer, if they have at least `MIN_LINE` characters.

    >>> outer_lines("yes"), outer_lines("What was done so far:\n\n- nothing\n")
    (set(), {'What was done so far:'})
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    return {line for line in (*lines[:1], *lines[-1:]) if len(line) >= MIN_LINE}


def texts_of(message: dict[str, Any]) -> list[str]:
    """Return the texts of a message's content, one per part."""
    content = sole_text(message.get("content"))
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and type(part.get("text")) is str]
    return [content] if isinstance(content, str) else []
