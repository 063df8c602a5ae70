"""A guessing game over several turns: a secret number, and a tool that says higher, lower or right."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import attrs

LEAST, MOST, TURNS = 1, 15, 4
"""The secret's range, and how many guesses there are: halving the range always finds it."""
CONSISTENT = 0.8
"""The share of a scripted player's guesses that agree with the answers so far; the others are random."""
RIGHT = "right"
RULES = f"Find the secret number from {LEAST} to {MOST}. You have {TURNS} guesses."
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "guess",
        "description": "Compare a number with the secret one.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
}
CALL = re.compile(r"<tool_call>\s*(\{.*\})\s*</tool_call>", re.DOTALL)
THOUGHTS = (
    "It is above {low} and below {high}.",
    "Between {low} and {high}.",
    "More than {low}, less than {high}.",
)


def answer(number: int, secret: int) -> str:
    """Return what the tool says of a guess.

    >>> [answer(number, 7) for number in (3, 7, 9)]
    ['higher', 'right', 'lower']
    """
    return RIGHT if number == secret else "higher" if number < secret else "lower"


def guessed(arguments: object) -> int | None:
    """Return the number of a call's arguments, JSON or an object; None where there is no whole number.

    >>> guessed('{"number":12}'), guessed('{"number": "x"}'), guessed("{")
    (12, None, None)
    """
    try:
        found = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None
    number = found.get("number") if isinstance(found, dict) else None
    return number if type(number) is int else None


def called(text: str) -> int | None:
    """Return the number that the call in a text guesses; None where it has no valid call.

    >>> called('So. <tool_call>{"name": "guess", "arguments": {"number":12}}</tool_call>'), called("12")
    (12, None)
    """
    found = CALL.search(text)
    try:
        call = json.loads(found[1]) if found else None
    except ValueError:
        return None
    return guessed(call.get("arguments")) if isinstance(call, dict) and call.get("name") == "guess" else None


@attrs.frozen
class Guess:
    """A guess of a scripted player: what it thinks, its number, and the tool's answer."""

    thought: str
    number: int
    answer: str

    def arguments(self, rng: Random) -> str:
        """Return the call's arguments with or without a space, as models write them."""
        return rng.choices(('{"number": %d}', '{"number":%d}'), (3, 1))[0] % self.number


def scripted(rng: Random) -> Iterator[Guess]:
    """Yield the guesses of a game: thoughts are right, and numbers only partly agree with them."""
    secret, low, high = rng.randint(LEAST, MOST), LEAST - 1, MOST + 1
    for _ in range(TURNS):
        sees = rng.random() < CONSISTENT
        number = rng.randint(low + 1, high - 1) if sees else rng.randint(LEAST, MOST)
        said = answer(number, secret)
        yield Guess(rng.choice(THOUGHTS).format(low=low, high=high), number, said)
        if said == RIGHT:
            return
        low, high = (max(low, number), high) if said == "higher" else (low, min(high, number))
