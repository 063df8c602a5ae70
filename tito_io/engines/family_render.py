"""Render messages with a family in this process, for engines that have no route that does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from tito_core import InputError, Message, TemplateRefused
from tito_core.normalization.canonical import calls_in, function_of

from .protocol import Rendering

if TYPE_CHECKING:  # an adapter that has no model folder loads no tokenizer library
    from tito_io.families.family import Bound, Family
    from tito_io.families.tokenizer_family import TokenizerBound, TokenizerFamily

T = TypeVar("T")


def check_family(family: object) -> None:
    """Raise `InputError` for a folder's name in the place of a family.

    >>> check_family("MODEL_FOLDER")
    Traceback (most recent call last):
    tito_core.errors.InputError: family is 'MODEL_FOLDER': give a family, such as Family.load('MODEL_FOLDER')
    """
    if isinstance(family, str | PathLike):
        name = str(family)
        raise InputError(f"family is {name!r:.60}: give a family, such as Family.load({name!r:.60})")


def template_of(family: Family | TokenizerFamily, rendering: Rendering) -> Bound | TokenizerBound:
    """Return a family's template with the tools and arguments of a `rendering`: a `TokenizeFn`."""
    return family.tokenize_fn(tools=rendering.tools or None, **rendering.template_args)


async def family_ids(
    family: Family | TokenizerFamily,
    messages: Sequence[Message],
    rendering: Rendering,
    *,
    add_generation_prompt: bool,
) -> list[int]:
    """Return the ids of messages, rendered in a thread: other turns go on meanwhile.

    The arguments of calls are objects for the template; see `with_objects`. Raises `TemplateRefused` where
    the template rejects the messages.
    """
    render = partial(template_of(family, rendering), add_generation_prompt=add_generation_prompt)
    return list(await anyio.to_thread.run_sync(with_objects, messages, render))


def with_objects(messages: Sequence[Message], render: Callable[[Sequence[Message]], T]) -> T:
    """Return what `render` makes of messages whose calls have objects as arguments, as engines render them.

    vLLM and SGLang parse the JSON text of arguments before a chat template sees it; many templates would
    quote the text once more. A template that rejects objects gets the text. Raises what `render` raises.

    >>> call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 3}'}}
    >>> messages = [{"role": "assistant", "tool_calls": [call]}]
    >>> with_objects(messages, lambda given: given[0]["tool_calls"][0]["function"]["arguments"])
    {'x': 3}
    """
    parsed = [_with_objects(message) for message in messages]
    try:
        return render(parsed)
    except TemplateRefused:
        if parsed == list(messages):
            raise
        return render(messages)


def _with_objects(message: Message) -> Message:
    calls = calls_in(message)
    return {**message, "tool_calls": [*map(_with_object, calls)]} if calls else message


def _with_object(call: Any) -> Any:
    """Return a call with its arguments as an object, empty without any; what is no JSON object stays."""
    function = function_of(call) if isinstance(call, dict) else {}
    written = function.get("arguments")
    if "name" not in function or not isinstance(written, str | None):
        return call
    try:
        arguments = json.loads(written or "{}")
    except (ValueError, RecursionError):
        return call
    if not isinstance(arguments, dict):
        return call
    changed = {**function, "arguments": arguments}
    return changed if function is call else {**call, "function": changed}
