"""The shapes of vLLM's answers: where each route puts ids, log-probabilities and text.

The chat route has the prompt's ids at the top and log-probabilities in entries; the completions route has
both in the choice, in lists; the generate route has entries with ids, as its version writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from tito_core import Message

from .invariants import Check

Choice = dict[str, Any]
Logprobs = tuple[float | None, ...]

NAME = "token_id:"
"""What stands before the number where vLLM writes a token as an id: before 0.32 on the generate route,
elsewhere on request."""
NAMED = re.compile(rf"({NAME}[0-9]+\n)*")


@attrs.frozen
class Shape:
    """The form of one route's answers.

    Attributes:
        ids_in_choice: Whether each choice repeats the prompt's ids; otherwise they stand at the top.
        must_echo: Whether the prompt's ids must come back. If not, the engine's count of them is enough.
        lists_ids: Whether sampled ids come in a list of their own, even where the prompt's do not come.
        logprobs: Reads a choice's log-probabilities, which must be those of its ids.
        names: Reads the tokens to which a choice's log-probabilities belong, texts or ids.
        message: Reads a choice's message; None on routes without one.
    """

    ids_in_choice: bool
    must_echo: bool
    lists_ids: bool
    logprobs: Callable[[Check, Choice, Sequence[int]], Logprobs]
    names: Callable[[Choice], Sequence[object]]
    message: Callable[[Check, Choice, Sequence[int]], Message | None]

    def prompt(
        self, check: Check, body: dict[str, Any], choice: Choice, sent: Sequence[int] | None, *, echo: bool
    ) -> Sequence[int]:
        """Return the ids that the engine saw; raises `InvalidReplyError` unless they were sent.

        Without `echo` they were not requested; those of a server that sends them anyway are compared too.
        """
        holder = choice if self.ids_in_choice else body
        if not (self.must_echo and echo) and sent is not None and holder.get("prompt_token_ids") is None:
            return sent
        seen = check.ids(holder, "prompt_token_ids")
        if sent is None:
            return seen
        check.echo(seen, sent)
        return sent

    def identified(self, choice: Choice) -> Choice:
        """Return a choice with its ids in `token_ids`, also where only its log-probabilities name them."""
        if choice.get("token_ids") is not None:
            return choice
        names = named_ids(self.names(choice))
        return choice if names is None else {**choice, "token_ids": names}

    def names_ids(self, choice: Choice) -> bool:
        """Whether a choice would have its ids without the prompt's, too."""
        ids, bare = choice.get("token_ids"), {**choice, "token_ids": None}
        return self.lists_ids or (bool(ids) and self.identified(bare)["token_ids"] == ids)


def settled(piece: Choice) -> Choice:
    """Return a chunk's choice with log-probabilities for its own ids only.

    Up to 0.28 a chunk without ids repeated those of all chunks before it.

    >>> old = {"token_ids": [], "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]}}
    >>> settled(old)["logprobs"]
    {'tokens': [], 'token_logprobs': []}
    """
    logprobs, ids = piece.get("logprobs"), piece.get("token_ids")
    if not isinstance(logprobs, dict):
        return piece
    count = len(ids) if isinstance(ids, list) else 0
    kept = {
        name: value[len(value) - count :] if isinstance(value, list) and len(value) > count else value
        for name, value in logprobs.items()
    }
    return {**piece, "logprobs": kept}


def _entries(check: Check, choice: Choice, ids: Sequence[int]) -> Logprobs:
    """Read log-probabilities in entries."""
    entries = check.get(_logprobs(choice, "content"), "content", list)
    # An entry names its token by its text or, in some versions, by its id.
    by_id = [isinstance(entry, dict) and type(entry.get("token_id")) is int for entry in entries]
    names = [
        f"token_id:{entry['token_id']}" if named else check.get(entry, "token", str)
        for entry, named in zip(entries, by_id, strict=True)
    ]
    same_ids(check, names, ids)
    return check.logprobs([entry.get("logprob") for entry in entries], len(ids))


def _lists(check: Check, choice: Choice, ids: Sequence[int]) -> Logprobs:
    """Read log-probabilities in a list, beside one of tokens."""
    logprobs = _logprobs(choice, "tokens", "token_logprobs")
    same_ids(check, check.get(logprobs, "tokens", list), ids)
    return check.logprobs(check.get(logprobs, "token_logprobs", list), len(ids))


def _values(choice: Choice, name: str) -> Sequence[object]:
    """Return a list of a choice's log-probabilities; an empty one where they are malformed."""
    logprobs = choice.get("logprobs")
    values = logprobs.get(name) if isinstance(logprobs, dict) else None
    return values if isinstance(values, list) else ()


def _tokens_of_entries(choice: Choice) -> Sequence[object]:
    entries = _values(choice, "content")
    return [entry.get("token") if isinstance(entry, dict) else None for entry in entries]


def named_ids(tokens: Sequence[object]) -> list[int] | None:
    """Return the ids of tokens that are all written as ids; None where one is not.

    >>> named_ids(["token_id:7", "token_id:8"]), named_ids(["token_id:7", "eight"]), named_ids([])
    ([7, 8], None, [])
    """
    if not set(map(type, tokens)) <= {str}:
        return None
    lines = "\n".join((*tokens, ""))  # type: ignore[arg-type]  # texts alone
    if NAMED.fullmatch(lines) is None or lines.count("\n") != len(tokens):
        return None
    return list(map(int, lines.replace(NAME, "").split()))


def _logprobs(choice: Choice, *names: str) -> object:
    """Return the log-probabilities' object; a turn of no ids may come without."""
    empty = choice.get("token_ids") == [] and choice.get("logprobs") is None
    return {name: [] for name in names} if empty else choice.get("logprobs")


def same_ids(check: Check, tokens: Sequence[object], ids: Sequence[int]) -> None:
    """Demand that tokens written as ids are the ids."""
    if tokens == [f"token_id:{index}" for index in ids]:
        return
    named = named_ids(tokens)
    if named and named != list(ids):
        check.fail("the log-probabilities belong to other ids than were sampled")


def _text_alone(check: Check, choice: Choice, _: Sequence[int]) -> None:
    """Demand the text that a completion has instead of a message."""
    check.get(choice, "text", str)


CHATTED = Shape(
    ids_in_choice=False,
    must_echo=True,
    lists_ids=False,
    logprobs=_entries,
    names=_tokens_of_entries,
    message=Check.message,
)
COMPLETED = Shape(
    ids_in_choice=True,
    must_echo=True,
    lists_ids=False,
    logprobs=_lists,
    names=lambda choice: _values(choice, "tokens"),
    message=_text_alone,
)
GENERATED = Shape(
    ids_in_choice=False,
    must_echo=False,
    lists_ids=True,
    logprobs=_entries,
    names=_tokens_of_entries,
    message=lambda *_: None,  # its answers may have no text
)
"""Before 0.30 this route repeats no ids. It takes nothing but ids, so their count is enough."""
DERENDERED = attrs.evolve(GENERATED, must_echo=True, message=Check.message)
"""The same route where the server makes the message, from 0.33 on."""
