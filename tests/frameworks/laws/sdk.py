"""What the laws of agent SDKs ask of an SDK: to make a model and to run an agent with two tools."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import attrs

from tests.frameworks.scripted import call, thought
from tito_core import InputError
from tito_io.client import TokenClient
from tito_io.engines.protocol import EngineError

INSTRUCTIONS = "Help, and be brief."
QUESTION = "How is the weather in Köln?"
HELLO = thought("A greeting.") + "Hello."
TEXTS = (
    thought("Both at once, then.")
    + call("weather", city="Köln")
    + "\n"
    + call("hour", city="Köln", exact=True),
    thought("It is unclear.") + "Let me look again.\n" + call("weather", city="Köln/Bonn", days=2),
    call("hour", city='the "old" town', exact=False),
    "One more.\n" + call("weather", city="Rome", days=3),
    thought("That is strange.") + call("hour", city="Rome", exact=True),
    thought("Enough of <that>.") + "It is sunny in Rome, however.",
)
"""Six turns: parallel calls, text before a call, with reasoning and without."""
CALLING = TEXTS[2]
PENALTIES = {"frequency_penalty": 0.25, "presence_penalty": 0.125}
SAMPLING = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 150, "parallel_tool_calls": True, **PENALTIES}
"""Settings that have these names in every SDK."""


def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: Where.
        days: For how many days.
    """
    return f"It is sunny in {city} for {days} days."


def hour(city: str, exact: bool) -> str:
    """Tell the time."""
    return f"noon in {city}" if exact else "about noon"


@attrs.frozen
class Answer:
    """What a run of an agent gave.

    Attributes:
        text: The answer.
        history: What the next run goes on from.
        turns: What the SDK made of each turn, to be compared with that of another way to run.
        usage: Prompt ids, sampled ids and cached ids of all turns.
    """

    text: str
    history: Sequence[Any]
    turns: Sequence[Any]
    usage: tuple[int, int, int]


class Sdk(abc.ABC):
    """An agent SDK.

    Attributes:
        settings: Arguments of a run that ask for what `asked` says.
        asked: Further sampling arguments that reach the engine for them.
        bad: Settings that cannot be honoured, with what the error names.
        refuses: The error for these.
        errors: What an engine's errors are in the SDK; the error itself where it comes out as it is.
        cut: The error of a run whose turn was cut, None where the cut turn is an answer.
        unfinished: Errors of runs whose turns have faults.
        unknown: The error for an unknown choice of `on_refusal`.
    """

    settings: ClassVar[Mapping[str, Any]]
    asked: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    bad: ClassVar[Sequence[tuple[str, Mapping[str, Any]]]]
    refuses: ClassVar[type[Exception]] = InputError
    errors: ClassVar[Sequence[tuple[EngineError, type[Exception]]]]
    cut: ClassVar[type[Exception] | None] = None
    unfinished: ClassVar[type[Exception]] = InputError
    unknown: ClassVar[type[Exception]] = InputError

    @abc.abstractmethod
    def model(self, client: TokenClient, **options: Any) -> Any:
        """Return a model with `calls`; `options` are `on_refusal` and `decode`."""

    @abc.abstractmethod
    async def run(
        self, model: Any, question: str, history: Any, settings: Mapping[str, Any], *, streams: bool
    ) -> Answer:
        """Run an agent with `INSTRUCTIONS` and both tools to its end; requests may be streamed."""

    async def whole(self, model: Any, question: str = QUESTION, history: Any = (), **settings: Any) -> Answer:
        """Run an agent to its end."""
        return await self.run(model, question, history, settings, streams=False)

    async def streamed(
        self, model: Any, question: str = QUESTION, history: Any = (), **settings: Any
    ) -> Answer:
        """Run an agent whose requests are streamed."""
        return await self.run(model, question, history, settings, streams=True)

    @abc.abstractmethod
    def pieces(self, model: Any, question: str, history: Sequence[Any]) -> AsyncIterator[str]:
        """Yield the text of the answer as it comes; a caller that stops leaves the stream."""

    @abc.abstractmethod
    def edited(self, history: Sequence[Any], text: str) -> Sequence[Any]:
        """Return a history whose last message, an assistant's, says something else."""
