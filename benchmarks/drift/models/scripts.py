"""What users say in conversations with real models. Texts are in `scripts.toml`, by language."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path

import attrs

from benchmarks.drift.agent import TOOLS
from tito_core import InputError

FILE = Path(__file__).with_name("scripts.toml")
LANGUAGES = ("english", "code", "other")
TOOLS_TEXT = (
    "You may call functions. Their signatures are:\n<tools>\n"
    + "\n".join(json.dumps(tool) for tool in TOOLS[:2])
    + "\n</tools>\nTo call one, write: <tool_call>\n"
    '{"name": "search", "arguments": {"query": "rain"}}\n</tool_call>'
)
"""Description of the tools in the system message: the templates of small models write none."""
NEW_TOPIC = 0.5
"""Share of the later messages that begin a new topic."""


@attrs.frozen
class Texts:
    """Texts in one language.

    Attributes:
        system: The system message.
        asked: Questions with a place for a topic.
        topics: Topics.
        then: Messages that go on.
    """

    system: str
    asked: Sequence[str]
    topics: Sequence[str]
    then: Sequence[str]

    @property
    def openings(self) -> list[str]:
        """All questions about all topics."""
        return [asked.format(topic) for asked, topic in product(self.asked, self.topics)]


@cache
def texts() -> Mapping[str, Sequence[Texts]]:
    """Return the texts by language; `other` has several languages."""
    found = tomllib.loads(FILE.read_text("utf-8"))
    return {name: [Texts(**one) for one in languages] for name, languages in found.items()}


def most_conversations() -> int:
    """Return how many conversations of each language begin unlike each other."""
    return min(len(each) * min(len(one.openings) for one in each) for each in texts().values())


@attrs.frozen
class UserScript:
    """What the system and the user say in one conversation.

    Attributes:
        system: The system message.
        users: The user's message of each turn.
    """

    system: str
    users: Sequence[str]

    @classmethod
    def drawn(cls, language: str, number: int, turns: int, seed: int) -> UserScript:
        """Draw the script of conversation `number`. Raises `InputError` where there are too few openings.

        The same number has the same script at each temperature and with each model.

        >>> script = UserScript.drawn("english", 0, 3, seed=0)
        >>> len(script.users), script == UserScript.drawn("english", 0, 3, seed=0)
        (3, True)
        """
        if number >= most_conversations():
            raise InputError(f"conversation {number}: only {most_conversations()} begin unlike each other")
        languages = texts()[language]
        spoken = languages[number % len(languages)]
        openings = spoken.openings
        random.Random(f"{seed}/{language}").shuffle(openings)  # noqa: S311  # reproducible choices, not secrets
        rng = random.Random(f"{seed}/{language}/{number}")  # noqa: S311  # likewise
        later = [rng.choice(openings if rng.random() < NEW_TOPIC else spoken.then) for _ in range(turns - 1)]
        return cls(spoken.system, [openings[number // len(languages)], *later])

    def with_tools(self) -> UserScript:
        """Return the script with a system message that describes tools."""
        return attrs.evolve(self, system=f"{self.system}\n\n{TOOLS_TEXT}")
