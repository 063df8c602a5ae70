"""A chat answer as a stream: a chunk with the role, chunks with ids, and the counts where asked for.

A chunk may hold several ids, or an id and no words: half a character, part of a tag, part of a stop string.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from attrs import define, evolve, field

from .chat_answer import ChatAnswer
from .deltas import Deltas
from .generation import Generation, Sampled
from .names import FINGERPRINT, call_ids
from .shown import chat_logprobs
from .usage import thoughts, usage
from .vocabulary import CALL, CLOSE, OPEN, THINK, THOUGHT, vocabulary

Chunk = dict[str, Any]


def chunks(answer: ChatAnswer) -> Iterator[Chunk]:
    """Yield the chunks; those of several choices take turns."""
    fields = evolve(answer.stamp, kind="chat.completion.chunk").fields()
    choices = [Choice(answer, place, reply) for place, reply in enumerate(answer.run.replies)]
    yield from ({**fields, **choice.first()} for choice in choices)
    rounds = zip_longest(*(choice.chunks() for choice in choices))
    yield from ({**fields, **chunk} for chunk in chain.from_iterable(rounds) if chunk is not None)
    if answer.asked.usage_at_end:
        counts = _without_none(answer.usage())
        yield {**fields, "choices": [], "usage": counts, "system_fingerprint": FINGERPRINT}


@define
class Choice:
    """One of the replies, while it is streamed."""

    answer: ChatAnswer
    place: int
    reply: Generation
    _sent: int = field(default=0, init=False)
    _called: bool = field(default=False, init=False)

    def first(self) -> Chunk:
        """Return the chunk that says whose turn it is, and what was read as the prompt."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": self.place, "delta": delta, "logprobs": None, "finish_reason": None}
        prompt = self.answer.prompt if self.answer.asked.return_ids else None
        told = {"prompt_token_ids": prompt, "prompt_text": self.answer.prompt_text}
        return {"choices": [choice], **self._usage(), **told}

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks with ids; one that says nothing is left out where no one counts ids."""
        asked = self.answer.asked
        thinking = self.answer.thinking and not thought_over(self.reply.prompt)
        deltas = Deltas(thinking, self.answer.tools, call_ids(self.reply))
        for steps in self.reply.events():
            self._sent += len(steps)
            over = self._sent == len(self.reply.steps)
            delta = self._one_call(deltas.feed("".join(step.text for step in steps), final=over))
            self._called = self._called or "tool_calls" in delta
            if delta or over or asked.return_ids or asked.logprobs is not None:
                yield self._chunk(steps, delta, over=over)

    def _chunk(self, steps: Sequence[Sampled], delta: Chunk, *, over: bool) -> Chunk:
        asked = self.answer.asked
        shown = None
        if asked.logprobs is not None:
            shown = chat_logprobs(steps, asked.logprobs, as_ids=asked.ids_as_tokens)
        choice = {"index": self.place, "delta": delta, "logprobs": shown, **self._finish(over=over)}
        choice["token_ids"] = [step.id for step in steps] if asked.return_ids else None
        last = over and not asked.usage_at_end
        return {"choices": [choice], **({"system_fingerprint": FINGERPRINT} if last else {}), **self._usage()}

    def _finish(self, *, over: bool) -> Chunk:
        if not over:
            return {"finish_reason": None}
        called = self._called and self.answer.calls_end and self.reply.finish_reason == "stop"
        reason = "tool_calls" if called else self.reply.finish_reason
        return {"finish_reason": reason, "stop_reason": self.reply.stop_reason}

    def _one_call(self, delta: Chunk) -> Chunk:
        """Leave out the calls that were not wanted."""
        if not self.answer.one_call or "tool_calls" not in delta:
            return delta
        kept = [call for call in delta["tool_calls"] if call["index"] == 0]
        return {**delta, "tool_calls": kept}

    def _usage(self) -> Chunk:
        """Return the counts so far, where they are wanted with every chunk."""
        if not self.answer.asked.usage_always:
            return {}
        thought = thoughts(self.reply.ids[: self._sent], thinking=self.answer.thinking)
        details = {"completion_tokens_details": {"reasoning_tokens": thought}}
        return {"usage": {**usage(len(self.answer.prompt), self._sent), **details}}


def thought_over(prompt: Sequence[int]) -> bool:
    """Whether the turn that the prompt leaves open is past its thought.

    Only a stream looks: a whole answer believes that a reply begins with a thought wherever thoughts are on.
    """
    words = vocabulary()
    ends = {words.id(THOUGHT), words.id(CALL)}
    stops = {words.id(THINK), words.id(OPEN), words.id(CLOSE)}
    found = next((one for one in reversed(prompt) if one in ends or one in stops), None)
    return found in ends


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(one) if isinstance(one, dict) else one
        for key, one in value.items()
        if one is not None
    }
