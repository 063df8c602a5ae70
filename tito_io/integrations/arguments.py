"""Arguments of integrations and of tool calls: checks and forms that integrations have in common."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tito_core import InputError
from tito_core.checks import short_repr
from tito_io.families.tokenizer_family import TokenizerFamily

NOT_OFFERED = {
    "rerender": "; the ids of a fresh render would not continue those that were sampled",
    "end": "; nothing here can end a sample",
}
"""Why some integrations do not have these choices."""

_LOG = logging.getLogger("tito.integrations")


def check_on_refusal(value: Any, choices: Sequence[str]) -> None:
    """Raise `InputError` unless `value` is one of `choices`.

    >>> check_on_refusal("ed", ("end", "raise"))
    Traceback (most recent call last):
    tito_core.errors.InputError: on_refusal is 'ed': give 'end' or 'raise'
    """
    if value not in choices:
        offered = " or ".join(map(repr, choices))
        why = NOT_OFFERED.get(value, "") if isinstance(value, str) else ""
        raise InputError(f"on_refusal is {short_repr(value)}: give {offered}{why}")


def with_objects(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose calls have their arguments as objects; a text that is no JSON stays the text.

    >>> with_objects({"tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]})
    {'tool_calls': [{'function': {'name': 'add', 'arguments': {'a': 1}}}]}
    """
    calls = [dict(call) for call in message.get("tool_calls") or ()]
    for call in calls:
        function = call["function"] = dict(call.get("function") or {})
        if isinstance(function.get("arguments"), str):
            with suppress(ValueError):
                function["arguments"] = json.loads(function["arguments"] or "{}")
    return {**message, "tool_calls": calls} if calls else dict(message)


def check_template(template: str | None, tokenizer: Any) -> None:
    """Raise `InputError` for a `template` that is neither the name of one nor the text of one.

    Text without a brace renders to itself, whatever the messages are: it is a name that is misspelt.
    """
    named = getattr(tokenizer, "chat_template", None)
    names = list(named) if isinstance(named, Mapping) else []
    if template is not None and "{" not in template and template not in names:
        raise InputError(
            f"template is {short_repr(template)}: give the text of a chat template, or the name of one of the"
            f" tokenizer's, which has {', '.join(names) or 'no names'}"
        )


def unknown_variables(family: TokenizerFamily, names: Iterable[str]) -> list[str]:
    """Return those `names` that no template has; none where the text of the templates is not known."""
    sources = family.tokenizer.sources
    words = {word for source in sources for word in re.findall(r"\w+", source)}
    return [name for name in names if sources and name not in words]


def check_variables(family: TokenizerFamily, names: Iterable[str], options: str) -> None:
    """Raise `InputError` for a name that no template has; `options` are the other names that may be given."""
    for name in unknown_variables(family, names):
        raise InputError(f"{name}: the chat template has no such variable, and the options are {options}")


def log_unknown_variables(family: TokenizerFamily, names: Iterable[str]) -> None:
    """Log variables that have no effect. A framework's configuration may have them for other models."""
    for name in unknown_variables(family, names):
        _LOG.warning("%.60s: the chat template has no such variable, so that it has no effect", name)
