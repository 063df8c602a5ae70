"""Turns of recorded exchanges, each with the ids and the text that a real engine sent for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import attrs

from tests.io.engines.recorded_exchanges import recorded
from tito_io.engines.replies.chunks import Assembly

Json = Mapping[str, Any]


@attrs.frozen
class RecordedTurn:
    """A turn as an engine sent it.

    Attributes:
        name: The name of its exchange.
        ids: The sampled ids.
        text: Their text.
        whole: Whether it reached the most ids that were asked for, so that its text was not cut.
    """

    name: str
    ids: tuple[int, ...]
    text: str
    whole: bool


def recorded_turns(files: str) -> list[RecordedTurn]:
    """Return the turns of the files whose names match, as far as their text is that of all ids.

    Turns with calls or reasoning are left out: the server has taken their texts apart.
    """
    found = (
        RecordedTurn(one["name"], tuple(ids), text, end in ("length", "limit"))
        for one in recorded(files)
        for body in _bodies(one["response"])
        for ids, text, end in (*_openai(body), *_native(body))
        if ids and text
    )
    return list(found)


def _openai(body: Json) -> Iterator[tuple[Any, Any, Any]]:
    ids_of_dynamo = (body.get("nvext") or {}).get("completion_token_ids")
    for choice in body.get("choices") or ():
        message = choice.get("message") or {}
        if not any(message.get(name) for name in ("tool_calls", "reasoning", "reasoning_content")):
            ids = choice.get("token_ids") or choice.get("response_token_ids") or ids_of_dynamo
            yield ids, choice.get("text", message.get("content")), choice.get("finish_reason")


def _native(body: Json) -> Iterator[tuple[Any, Any, Any]]:
    """Yield a turn of SGLang's own route, or of llama.cpp's."""
    if "output_ids" in body:
        reason = (body.get("meta_info") or {}).get("finish_reason") or {}
        yield body["output_ids"], body.get("text"), reason.get("type")
    if "stop_type" in body:
        yield body.get("tokens"), body.get("content"), body["stop_type"]


def _bodies(response: Any) -> list[Json]:
    """Return the bodies of an answer: of a stream, the one that its events add up to, or the last one."""
    if isinstance(response, dict):
        return [response]
    events = [event for line in _lines(response) if isinstance(event := _event(line), dict)]
    if not any("choices" in event for event in events):
        return [event for event in events[-1:] if "output_ids" in event]
    whole = Assembly()
    for event in events:
        whole.add(event)
    return [whole.body()]


def _lines(response: Any) -> list[Any]:
    return response.splitlines() if isinstance(response, str) else response or []


def _event(line: Any) -> Any:
    with suppress(ValueError):
        return json.loads(line.removeprefix("data:")) if isinstance(line, str) else line
