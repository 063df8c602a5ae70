"""A question as peers take it: one conversation whose last turn was sampled, and the messages after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs


class NotOffered(Exception):  # noqa: N818  # no error: the peer has no such operation
    """The peer has no such operation."""


Message = dict[str, Any]
NO_MATCH = "finding the step that a request continues"


@attrs.frozen(slots=False)
class Asked:
    """A vector's question, and its tokenizer for transformers.

    Attributes:
        question: What `tito conform` sends.
        tokenizer: A `PreTrainedTokenizerFast` with the vector's template.
    """

    question: Mapping[str, Any]
    tokenizer: Any

    @cached_property
    def step(self) -> Mapping[str, Any]:
        """The step that the request continues, for peers that keep one conversation and only append to it.

        Raises `NotOffered` if none of the trajectory's steps is literally the beginning of the request.
        """
        request = self.question["messages"]
        fitting = [
            step
            for step in self.question["trajectory"]
            if [*step["messages"], step["turn"]] == request[: len(step["messages"]) + 1]
        ]
        step = max(fitting, key=lambda one: len(one["messages"]), default=None)
        if step is None or len(step["messages"]) + 1 == len(request):
            raise NotOffered(NO_MATCH)
        found: Mapping[str, Any] = step
        return found

    @property
    def before(self) -> list[Message]:
        """The messages up to and including the turn."""
        return [*self.step["messages"], self.step["turn"]]

    @property
    def new(self) -> list[Message]:
        """The messages after the turn."""
        return list(self.question["messages"][len(self.before) :])

    @property
    def ids(self) -> list[int]:
        """The ids of the turn's prompt, and the sampled ids."""
        return [*self.step["prompt_ids"], *self.step["sampled_ids"]]

    @property
    def tools(self) -> Sequence[Mapping[str, Any]] | None:
        """The tools."""
        found: Sequence[Mapping[str, Any]] | None = self.question["tools"]
        return found

    @property
    def arguments(self) -> dict[str, Any]:
        """Further variables of the template."""
        return dict(self.question["template_arguments"])

    @property
    def chatml(self) -> bool:
        r"""Whether the template closes turns as ChatML does, with `<|im_end|>` and a line break.

        Some peers have classes for models whose templates do so.
        """
        template = self.question["template"]
        parts = ("'<|im_start|>' + message.role", r"<|im_end|>\n")
        return all(part in template for part in parts) and "<|eom|>" not in template

    def without_arguments(self) -> None:
        """Raise `NotOffered` if the template has further variables."""
        if self.arguments:
            raise NotOffered("template arguments")


KINDS = {"system": "SystemMessage", "user": "UserMessage", "tool": "ToolMessage"}


def typed(types: Any, message: Message) -> Any:
    """Return a message as verifiers has it; `types` is the module of its messages, whose place moved."""
    if message["role"] != "assistant":
        return getattr(types, KINDS[message["role"]])(**message)
    functions = [(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
    calls = [
        types.ToolCall(id=index, name=function["name"], arguments=_text(function["arguments"]))
        for index, function in functions
    ]
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return types.AssistantMessage(
        content=message.get("content"), reasoning_content=reasoning, tool_calls=calls or None
    )


def _text(arguments: Any) -> str:
    """Return arguments as the JSON text that engines send."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
