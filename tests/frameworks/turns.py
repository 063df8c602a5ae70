"""Sampled turns and the messages after them, over real tokenizers: what a framework's next prompt must be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from jinja2.exceptions import TemplateError

from tests.model_folders import FAMILIES
from tito_core.seams.seam import common_prefix

Messages = Sequence[Mapping[str, Any]]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
            },
        },
    }
]


def call(number: int) -> dict[str, Any]:
    return {
        "id": f"callabcd{number}",
        "type": "function",
        "function": {"name": "add", "arguments": {"a": number}},
    }


def result(number: int) -> dict[str, Any]:
    return {
        "role": "tool",
        "tool_call_id": f"callabcd{number}",
        "name": "add",
        "content": "The answer is 7.",
    }


def calling(content: str, *numbers: int, **more: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": [call(one) for one in numbers], **more}


HISTORY = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 3+4?"}]
CASES: dict[str, tuple[Messages, Mapping[str, Any], Messages, Messages | None]] = {
    "user": (
        HISTORY,
        {"role": "assistant", "content": "It is 7."},
        [{"role": "user", "content": "Sure?"}],
        None,
    ),
    "tool": (HISTORY, calling("Let me see.", 1), [result(1)], TOOLS),
    "tool, no text": (HISTORY, calling("", 1), [result(1)], TOOLS),
    "two tools": (HISTORY, calling("Let me see.", 1, 2), [result(1), result(2)], TOOLS),
    "tool after reasoning": (
        HISTORY,
        calling("Now.", 1, reasoning_content="Add them."),
        [result(1)],
        TOOLS,
    ),
    "tool, then user": (
        HISTORY,
        calling("Let me see.", 1),
        [result(1), {"role": "user", "content": "Hurry."}],
        TOOLS,
    ),
    "second tool": (
        [*HISTORY, calling("a", 1), result(1)],
        calling("Let me see.", 2),
        [result(2)],
        TOOLS,
    ),
}
"""History, sampled turn, new messages and tools, by name."""


DROPS = {"phi3", "phi4"}
"""Families whose template writes nothing for tool results, so that a model would go on without them."""


def swallowed(name: str, case: str) -> bool:
    """Return whether a family's template leaves out messages of a case."""
    return name in DROPS and "tool" in case


@attrs.frozen
class SampledPrompt:
    """The ids of a prompt and of the turn that was sampled after it, and what must become of them.

    Attributes:
        case: The name of the conversation.
        cut: Whether the last id before the stop and the stop are missing.
        history: The messages before the turn.
        turn: The turn.
        new: The messages after it.
        tools: What the template gets as tools.
        ids: The prompt and the sampled ids.
        prefix: The render that ends with the turn.
        render: The whole render.
        expected: The next prompt: `ids`, and what the template writes from the turn's stop on.
    """

    case: str
    cut: bool
    history: Messages
    turn: Mapping[str, Any]
    new: Messages
    tools: Messages | None
    ids: list[int]
    prefix: list[int]
    render: list[int]
    expected: list[int]


def stop_ids(name: str) -> tuple[int, ...]:
    """Return the stop ids of a family."""
    return tuple(json.loads((FAMILIES / name / "meta.json").read_text())["stop_tokens"].values())


def without_ids(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without ids of calls and names of results, as most of verl's parsers make it."""
    kept = {name: value for name, value in message.items() if name not in ("tool_call_id", "name")}
    if "tool_calls" in kept:
        kept["tool_calls"] = [
            {"type": one["type"], "function": one["function"]} for one in kept["tool_calls"]
        ]
    return kept


def sampled_prompts(
    tokenizer: Any, stops: Sequence[int], change: Callable[[Mapping[str, Any]], dict[str, Any]] = dict
) -> Iterator[SampledPrompt]:
    """Yield the cases that the tokenizer's template can render and that end with a stop, and the same cut."""
    for case, (before, sampled, after, tools) in CASES.items():
        history, turn, new = [change(one) for one in before], change(sampled), [change(one) for one in after]
        options = {"tools": tools, "return_dict": False}
        try:
            prompt = tokenizer.apply_chat_template(history, add_generation_prompt=True, **options)
            prefix = tokenizer.apply_chat_template([*history, turn], **options)
            render = tokenizer.apply_chat_template(
                [*history, turn, *new], add_generation_prompt=True, **options
            )
        except (TemplateError, TypeError):  # the template takes no such conversation
            continue
        start = common_prefix(
            prompt, render
        )  # a template may write less than the prompt had, such as an empty thought
        stop = next((at for at in range(start, len(render)) if render[at] in stops), None)
        if stop is None:
            continue
        made = (case, history, turn, new, tools)
        yield _prompt(*made, render[: stop + 1], prefix, render, render, cut=False)
        if stop - 1 > start:
            short = render[: stop - 1]
            yield _prompt(*made, short, prefix, render, [*short, *render[stop:]], cut=True)


def _prompt(case: str, *values: Any, cut: bool) -> SampledPrompt:
    return SampledPrompt(case, cut, *values)
