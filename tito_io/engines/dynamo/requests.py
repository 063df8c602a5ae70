"""Request bodies for Dynamo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tito_core import Message
from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.openai_fields import rendering_keys, sampling_keys, wire_messages
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

from .keys import Route, merge, translated

FIELDS = ("completion_token_ids", "prompt_token_ids", "engine_data", "stop_reason", "detailed_finish_reason")
"""Fields requested besides the OpenAI answer. Frontends ignore names that they do not know."""
ECHO = "prompt_token_ids"
"""The field that makes the frontend repeat the prompt's ids."""

PLACEHOLDER = {"role": "user", "content": "(token ids)"}
"""The message that the chat route demands; it prompts with `nvext.token_data` instead."""

OWNED = frozenset(("max_tokens", "n", "seed", "stop", "stop_token_ids", "temperature"))
"""Keys that `Sampling.extra` may not hold: they have fields of their own."""


@attrs.frozen(kw_only=True)
class DynamoOptions:
    """What every turn of an engine is requested with.

    Attributes:
        logprobs: Whether to request log-probabilities.
        routed_experts: Whether to request which experts each position was routed to.
        echo: Whether the frontend is to repeat the prompt's ids; the worker does so anyway.
    """

    logprobs: bool = True
    routed_experts: bool = False
    echo: bool = True

    @property
    def fields(self) -> list[str]:
        """The names for `extra_fields`."""
        fields = [name for name in FIELDS if self.echo or name != ECHO]
        return [*fields, "routed_experts"] if self.routed_experts else fields


def chat(
    model: str, messages: Sequence[Message], rendering: Rendering, sampling: Sampling, options: DynamoOptions
) -> dict[str, Any]:
    """Return the body that requests a turn after messages."""
    body = {"model": model, "messages": wire_messages(messages), **rendering_keys(rendering)}
    return _completed(body, sampling, sampling.max_tokens, options, "chat")


def chat_after_ids(turn: TurnAfterIds, options: DynamoOptions) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the chat route, where the server's parsers run."""
    prompt = {"messages": [PLACEHOLDER], "nvext": {"token_data": turn.ids}}
    body = {"model": turn.model.name, **prompt, **rendering_keys(turn.rendering or Rendering())}
    return _completed(body, turn.sampling, turn.max_tokens, options, "chat")


def completion(turn: TurnAfterIds, options: DynamoOptions) -> dict[str, Any]:
    """Return the body that requests a turn after ids. Special tokens stay in the text."""
    body = {"model": turn.model.name, "prompt": turn.ids, "skip_special_tokens": False}
    return _completed(body, turn.sampling, turn.max_tokens, options, "completions")


def _completed(
    body: dict[str, Any], sampling: Sampling, limit: int | None, options: DynamoOptions, route: Route
) -> dict[str, Any]:
    """Return a body with sampling parameters and requested fields, under Dynamo's names."""
    if sampling.n != 1:
        raise UnsupportedError(
            f"Sampling.n is {sampling.n}: Dynamo returns the ids of one turn per request; send that many "
            "requests. Nothing was sent",
            parameter="n",
        )
    parameters = sampling_keys(sampling, limit, OWNED)
    parameters |= {"logprobs": 0} if options.logprobs else {}
    merge(body, translated({**parameters, **sampling.extra}, route))
    merge(body, {"nvext": {"extra_fields": options.fields}})
    return body
