"""Calls whose messages another call retells: the explanation of a history that was rendered again or cut.

Ids are the truth about what a call continues; messages only say why a call stands where it does. They are
compared by their canonical form (`normal.py`), and only for calls whose prompts hold an assistant's message
that their ids do not account for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from ..message import Messages
from ..normalization.canonical import Canonical, normal_copy, sole_text
from .call import StoredCall
from .ties import NOBODY, Candidates

TELLING = 16
"""Characters that a line of an answer needs, for its reappearance to be no accident."""


class Retold:
    """All prefixes of the messages of some calls."""

    def __init__(self, calls: Iterable[StoredCall]) -> None:
        """Place the messages of `calls`."""
        self._newer: dict[tuple[int, int], int] = {}
        self._forms: dict[Any, int] = {}
        self._older: list[int] = [0]
        self._known: dict[int, tuple[Messages, int]] = {}
        self._ends: dict[int, Candidates] = {}
        for call in calls:
            place = self._place(call.step.messages)
            self._place(call.step.prompt)
            if answer(call) is not None:
                self._ends.setdefault(place, Candidates()).add(call)
        self._nearest = self._nearest_ends()

    def longest(self, call: StoredCall) -> Candidates:
        """Return the calls whose messages begin the prompt of `call`, those with the most messages."""
        return self._ends.get(self._nearest[self._place(call.step.prompt)], NOBODY)

    def _nearest_ends(self) -> list[int]:
        """Return for each place the last one before it, or itself, where a call ends; 0 where none does."""
        nearest = [0]
        for place in range(1, len(self._older)):
            nearest.append(place if place in self._ends else nearest[self._older[place]])
        return nearest

    def _place(self, messages: Messages) -> int:
        missing, place = [], 0
        for link in messages.links():
            if id(link) in self._known:
                place = self._known[id(link)][1]
                break
            missing.append(link)
        for link in reversed(missing):
            for message in link.part:
                place = self._after(place, self._form(message, plain=link.texts))
            self._known[id(link)] = link, place
        return place

    def _form(self, message: dict[str, Any], *, plain: bool) -> int:
        """Return the number of a message's canonical form; spellings that hold but texts are seen once."""
        if not plain:
            return self._number(normal_copy(message))
        spelled = _spelled(message)
        if spelled not in self._forms:
            self._forms[spelled] = self._number(normal_copy(message))
        return self._forms[spelled]

    def _number(self, form: Canonical) -> int:
        return self._forms.setdefault(form, len(self._forms))

    def _after(self, place: int, form: int) -> int:
        found = self._newer.get((place, form))
        if found is None:
            found = self._newer[place, form] = len(self._older)
            self._older.append(place)
        return found


def _spelled(value: Any) -> Any:
    """Return texts in lists and mappings as a key; only without numbers is `==` identity."""
    if isinstance(value, dict):
        return ("object", *((key, _spelled(item)) for key, item in value.items()))
    return ("array", *map(_spelled, value)) if isinstance(value, list) else value


class Quoted:
    """What calls asked and answered, to be found again in a shorter prompt.

    Two things show that a prompt restates a call: it has the call's question and its answer next to each
    other, or a message that is no assistant's has the answer's whole text (a summary that the model wrote),
    with the answer's first or last line on a line of its own.
    """

    def __init__(self, calls: Iterable[StoredCall]) -> None:
        """Index `calls` by their last turn and by the outer lines of their answer."""
        self._turns: dict[tuple[Canonical, Canonical], list[StoredCall]] = {}
        self._lines: dict[str, list[StoredCall]] = {}
        for call in calls:
            said = answer(call)
            if said is None:
                continue
            if len(call.step.prompt) and len(call.step.completion) == 1:
                turn = normal_copy(call.step.prompt[-1]), normal_copy(said)
                self._turns.setdefault(turn, []).append(call)
            for line in marks(_text(said)):
                self._lines.setdefault(line, []).append(call)

    def compacted(self, call: StoredCall) -> StoredCall | None:
        """Return the latest earlier call that the prompt of `call` restates in fewer messages."""
        prompt = list(call.step.prompt)
        found = [*self._restated(prompt), *self._quoted(prompt)]
        opening = list(map(normal_copy, call.step.prompt.opening))
        fitting = [
            other
            for other in found
            if other.key < call.key
            and len(prompt) < len(other.step.messages)
            and list(map(normal_copy, other.step.messages.opening)) == opening
        ]
        return max(fitting, key=lambda other: other.key, default=None)

    def _restated(self, prompt: Sequence[dict[str, Any]]) -> Iterator[StoredCall]:
        forms = list(map(normal_copy, prompt))
        for turn in pairwise(forms):
            yield from self._turns.get(turn, ())

    def _quoted(self, prompt: Sequence[dict[str, Any]]) -> Iterator[StoredCall]:
        """Look up each line as an outer one of an answer, then see that the whole answer is there."""
        for message in prompt:
            if message["role"] == "assistant":
                continue
            for text in texts(message):
                for line in dict.fromkeys(map(str.strip, text.splitlines())):
                    yield from (call for call in self._lines.get(line, ()) if _says(call) in text)


def answer(call: StoredCall) -> dict[str, Any] | None:
    """Return the assistant's message that a call ends with, if it ends with one."""
    last = call.step.completion[-1] if call.step.completion else None
    return last if last is not None and last["role"] == "assistant" else None


def marks(text: str) -> set[str]:
    r"""Return the first and the last line of an answer, where they are long enough to be known again.

    >>> marks("yes"), marks("What was done so far:\n\n- nothing\n")
    (set(), {'What was done so far:'})
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {line for line in (*lines[:1], *lines[-1:]) if len(line) >= TELLING}


def texts(message: dict[str, Any]) -> list[str]:
    """Return the texts of a message, one a part."""
    content = sole_text(message.get("content"))
    if isinstance(content, list):
        return [part["text"] for part in content if isinstance(part, dict) and type(part.get("text")) is str]
    return [content] if isinstance(content, str) else []


def _text(message: dict[str, Any]) -> str:
    """Return an answer's text as it stands in its content."""
    return "\n".join(texts(message)).strip()


def _says(call: StoredCall) -> str:
    said = answer(call)
    return "" if said is None else _text(said)
