"""What Dynamo is asked: the bodies of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core import Ids, InputError, Message
from tito_io.engines.openai_fields import rendered, said
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

from .keys import merge, translated
from .routes import Route

FIELDS = ("completion_token_ids", "prompt_token_ids", "engine_data", "stop_reason", "detailed_finish_reason")
"""What is asked for beside the OpenAI answer. Unknown names are ignored there, so older frontends take it."""
ECHO = "prompt_token_ids"
"""What has the frontend repeat the prompt's ids."""

PLACEHOLDER = {"role": "user", "content": "(token ids)"}
"""The chat route wants a message, and prompts with `nvext.token_data` instead. One is enough: it is neither
counted nor measured."""

FIELDS_OF_THEIR_OWN = frozenset(("max_tokens", "n", "seed", "stop", "stop_token_ids", "temperature"))


@attrs.frozen(kw_only=True)
class DynamoOptions:
    """What every turn of an engine is asked for."""

    logprobs: bool = True
    routed_experts: bool = False

    echo: bool = True
    """Whether the frontend is to repeat the prompt's ids; the worker does so anyway."""

    @property
    def fields(self) -> list[str]:
        """The names for `extra_fields`."""
        found = [name for name in FIELDS if self.echo or name != ECHO]
        return [*found, "routed_experts"] if self.routed_experts else found


def chat(
    model: str, messages: Sequence[Message], rendering: Rendering, sampling: Sampling, asked: DynamoOptions
) -> dict[str, Any]:
    """Return the body that asks for a turn after messages."""
    body = {"model": model, "messages": said(messages), **rendered(rendering)}
    return _whole(body, {}, sampling, sampling.max_tokens, asked, "chat")


def chat_after_ids(  # the five things that a request is made of, and its limit
    model: str,
    ids: Ids,
    rendering: Rendering | None,
    sampling: Sampling,
    limit: int | None,
    asked: DynamoOptions,
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the chat route, where the server's parsers run."""
    body = {"model": model, "messages": [PLACEHOLDER], **rendered(rendering or Rendering())}
    return _whole(body, {"token_data": ids}, sampling, limit, asked, "chat")


def completion(
    model: str, ids: Ids, sampling: Sampling, limit: int | None, asked: DynamoOptions
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids. Special tokens stay in the text."""
    body = {"model": model, "prompt": ids, "skip_special_tokens": False}
    return _whole(body, {}, sampling, limit, asked, "completions")


def streamed(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body that asks for the same in pieces, counts and all."""
    return {**body, "stream": True, "stream_options": {"include_usage": True}}


def _whole(  # a body is made of so much
    body: dict[str, Any],
    nvext: Mapping[str, Any],
    sampling: Sampling,
    limit: int | None,
    asked: DynamoOptions,
    route: Route,
) -> dict[str, Any]:
    merge(body, translated(_wanted(sampling, limit, asked), route))
    merge(body, {"nvext": {**nvext, "extra_fields": asked.fields}})
    return body


def _wanted(sampling: Sampling, limit: int | None, asked: DynamoOptions) -> Mapping[str, Any]:
    """Return how to sample, in the words that the table knows."""
    if sampling.n != 1:
        raise UnsupportedError(
            f"Sampling.n is {sampling.n}: Dynamo tells the ids of one turn a request; ask that often. "
            "Nothing was sent"
        )
    if limit is not None and limit < 1:
        raise InputError(f"Sampling.max_tokens is {limit}: a turn has an id or more; ask for at least 1")
    wrong = sorted(FIELDS_OF_THEIR_OWN & sampling.extra.keys())
    if wrong:
        raise InputError(f"Sampling.extra: {wrong[0]!r} is not an extra; it has a field of its own")
    given = {
        "max_tokens": limit,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(sampling.stop_ids) or None,
        "logprobs": 0 if asked.logprobs else None,
    }
    return {**{name: value for name, value in given.items() if value is not None}, **sampling.extra}
