"""What the laws of rollouts ask of a framework: to hold a conversation with the sampler, and its row."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import field, frozen

from tests.frameworks.sampler import Engine

QUESTION = {"role": "user", "content": "What is 3 + 4?"}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


def asks(text: str) -> str:
    """Return what the template writes between two turns for a user's message."""
    return f"\n<|turn|>user\n{text}<|done|>\n<|turn|>assistant\n"


def results(*texts: str) -> str:
    """Return what the template writes between two turns for results of tools."""
    written = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
    return f"\n<|turn|>tool\n{written}<|done|>\n<|turn|>assistant\n"


@frozen
class Given:
    """What a conversation is held with.

    Attributes:
        tokenizer: The tokenizer.
        engine: The sampler.
        on_refusal: What follows a refusal, None for the integration's own choice.
        template_args: Variables for the template.
    """

    tokenizer: Any
    engine: Engine
    on_refusal: Any = None
    template_args: dict[str, Any] = field(factory=dict)

    @property
    def choice(self) -> dict[str, Any]:
        """The choice as an argument, if there is one."""
        return {} if self.on_refusal is None else {"on_refusal": self.on_refusal}


@frozen
class Talk:
    """A conversation that a framework held.

    Attributes:
        ids: The ids of its training row.
        mask: For each id whether it trains.
        logprobs: Its log-probabilities, None where the framework has none.
        built: How many prompts were built from ids.
        refused: How many were refused, by the name of the reason.
        asked: The messages of each prompt, where a refusal renders them.
    """

    ids: Sequence[int]
    mask: Sequence[float]
    logprobs: Sequence[float] | None
    built: int
    refused: Counter[str]
    asked: Sequence[Any] = ()

    @classmethod
    def of(
        cls, prompt: list[int], response: list[int], mask: list[int], logprobs: list[float], *more: Any
    ) -> Talk:
        """Return the talk of a framework that has a mask for ids after the prompt only."""
        before = len(prompt)
        return cls([*prompt, *response], [0] * before + mask, [0.0] * before + logprobs, *more)


class Rollouts(abc.ABC):
    """A framework that holds conversations.

    Attributes:
        turns: How many turns a conversation has at most.
        first: The messages of the first prompt.
        tools: Its tools.
        between: For each turn but the last what the template may write after it; empty if that depends on
            what was sampled.
        cut_ends: Whether a turn that was cut ends the conversation.
        variables: Whether variables of the template can be set.
        choices: The choices of `on_refusal`; none where the integration always raises.
    """

    turns: ClassVar[int] = 4
    first: ClassVar[Sequence[Mapping[str, Any]]] = (QUESTION,)
    tools: ClassVar[Sequence[Mapping[str, Any]] | None] = None
    between: ClassVar[Sequence[set[str]]] = ()
    cut_ends: ClassVar[bool] = False
    variables: ClassVar[bool] = True
    choices: ClassVar[Sequence[str]]

    def rejecting(self, template: str) -> str:
        """Return the template with a guard: it takes only conversations that begin with the question."""
        guard = f"messages[0].content != '{self.first[0]['content']}'"
        return f"{{%- if {guard} -%}}{{{{ raise_exception('no') }}}}{{%- endif -%}}{template}"

    @abc.abstractmethod
    async def talk(self, given: Given) -> Talk:
        """Hold a conversation."""
