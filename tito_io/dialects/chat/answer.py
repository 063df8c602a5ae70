"""Answers of Chat Completions."""

from __future__ import annotations

from typing import Any

from tito_core import Message
from tito_io.dialects.message_parts import Spoken
from tito_io.dialects.protocol import ParsedRequest, SampledMessage, TurnAnswer
from tito_io.dialects.tokens import entries
from tito_io.engines.protocol import Usage


def whole(asked: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of an answer."""
    return {
        "id": answer.id,
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [_choice(asked, answer, place, said) for place, said in enumerate(answer.choices)],
        "usage": usage(answer.usage),
        **({"prompt_token_ids": list(answer.prompt_ids)} if asked.return_token_ids else {}),
    }


def _choice(asked: ParsedRequest, answer: TurnAnswer, place: int, said: SampledMessage) -> dict[str, Any]:
    return {
        "index": place,
        "message": {**message(said.message), "refusal": None},
        "logprobs": logprobs(asked, answer, said),
        "finish_reason": said.finish_reason,
        "stop_reason": said.stop_reason,
        **({"token_ids": list(said.completion_ids)} if asked.return_token_ids else {}),
    }


def message(given: Message) -> dict[str, Any]:
    """Return an assistant message as clients know it; null and empty content stay what they are.

    >>> message({"role": "assistant", "content": "", "reasoning": "hm"})
    {'role': 'assistant', 'content': '', 'reasoning': 'hm', 'reasoning_content': 'hm'}
    """
    spoken = Spoken.of(given)
    return {
        "role": "assistant",
        "content": given.get("content"),
        **reasoning(spoken.reasoning),
        **({"tool_calls": [call.wire() for call in spoken.calls]} if spoken.calls else {}),
    }


def reasoning(text: str) -> dict[str, str]:
    """Return a thought under both of its names, nothing where there was none."""
    return {"reasoning": text, "reasoning_content": text} if text else {}


def logprobs(
    asked: ParsedRequest, answer: TurnAnswer, said: SampledMessage, begin: int = 0
) -> dict[str, Any] | None:
    """Return the log-probabilities of a turn from one id on, None where nobody asked or knows."""
    if not asked.logprobs or said.logprobs is None:
        return None
    ids, values = said.completion_ids[begin:], said.logprobs[begin:]
    return {"content": entries(ids, values, answer.token_text, as_ids=asked.tokens_as_ids), "refusal": None}


def usage(counted: Usage) -> dict[str, Any]:
    """Return the counts, those of the prefix cache where they are known."""
    cached = counted.cached_tokens
    return {
        "prompt_tokens": counted.prompt_tokens,
        "completion_tokens": counted.completion_tokens,
        "total_tokens": counted.prompt_tokens + counted.completion_tokens,
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
    }
