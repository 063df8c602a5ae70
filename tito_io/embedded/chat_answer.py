"""A whole chat answer."""

from __future__ import annotations

from typing import Any

from attrs import evolve, frozen

from .engine import Run
from .generation import Generation
from .names import FINGERPRINT, Stamp, call_ids
from .parsing import Parsed, parse
from .request import Asked
from .shown import chat_logprobs, prompt_logprobs
from .usage import cached, full, thoughts


@frozen(kw_only=True)
class ChatAnswer:
    """The replies to one prompt and everything that decides how they are shown."""

    stamp: Stamp
    prompt: list[int]
    prompt_text: str | None
    run: Run
    asked: Asked
    thinking: bool
    tools: bool
    calls_end: bool
    """Whether a call makes the finish reason `tool_calls`."""
    one_call: bool
    """Whether calls after the first are left out of the message (not out of the ids)."""

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        scored = self.asked.scored
        return {
            **self.stamp.fields(),
            "choices": [self._choice(place, reply) for place, reply in enumerate(self.run.replies)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage(),
            "prompt_logprobs": None if scored is None else prompt_logprobs(self.prompt, scored),
            "prompt_token_ids": self.prompt if self.asked.return_ids else None,
            "prompt_text": self.prompt_text,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def usage(self) -> dict[str, Any]:
        """Return the counts over all choices."""
        thought = sum(thoughts(reply.ids, thinking=self.thinking) for reply in self.run.replies)
        return full(len(self.prompt), self.run.replies, cached(self.run.cached, 0), thought)

    def _choice(self, place: int, reply: Generation) -> dict[str, Any]:
        parsed = self._parsed(reply)
        called = bool(parsed.calls) and self.calls_end
        shown = self.asked.logprobs
        return {
            "index": place,
            "message": parsed.message(call_ids(reply)),
            "logprobs": None
            if shown is None
            else chat_logprobs(reply.steps, shown, as_ids=self.asked.ids_as_tokens),
            "finish_reason": "tool_calls" if called else reply.finish_reason,
            "stop_reason": reply.stop_reason,
            "token_ids": reply.ids if self.asked.return_ids else None,
            "routed_experts": None,
        }

    def _parsed(self, reply: Generation) -> Parsed:
        parsed = parse(reply.text, thinking=self.thinking, tools=self.tools)
        if self.asked.sampling.must_call is not None:
            parsed = evolve(parsed, content=parsed.content or "")
        return evolve(parsed, calls=parsed.calls[:1]) if self.one_call else parsed
