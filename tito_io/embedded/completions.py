"""`POST /v1/completions`: ids or text in, ids and text out, nothing parsed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from .engine import EmbeddedEngine, PromptReplies
from .generation import Generation, SampledId
from .http import JSON, BadRequest, Body, bad, invalid, stream, token_ids
from .reply_parts import FINGERPRINT, Stamp, cached, completion_logprobs, full, prompt_logprobs, stamp, usage
from .request import RenderRequest, SamplingRequest, asked
from .vocabulary import vocabulary

DEFAULT_TOKENS = 16
"""How long a reply is where the request does not say."""


async def completions(engine: EmbeddedEngine, request: Request) -> Response:
    """Answer one request, for one prompt or several."""
    body = await Body.read(request)
    if body.get("prompt") in (None, ""):
        raise bad("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    engine.check_model(body)
    prompts = [_ids(engine, prompt) for prompt in _prompts(body.get("prompt"))]
    limit = body.integer("max_tokens")
    wanted = DEFAULT_TOKENS if limit is None else limit
    logprobs = body.integer("logprobs")
    plans = [
        asked(body, max_tokens=engine.room(ids, wanted, from_text=text), logprobs=logprobs)
        for ids, text in prompts
    ]
    runs = [engine.run(ids, plan.sampling, plan.count) for (ids, _), plan in zip(prompts, plans, strict=True)]
    answer = CompletionsAnswer(stamp(request, "cmpl", "text_completion", engine.model), runs, plans[0])
    return stream(answer.chunks()) if plans[0].stream else JSON(answer.body())


def _prompts(given: Any) -> list[Any]:
    """Return the prompts of a request: one text, one list of ids, or a list of either."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        return [token_ids(given, "body.prompt")]
    if not given:
        raise BadRequest("You must pass at least one prompt")
    return given if isinstance(given[0], str | list) else [given]


def _ids(engine: EmbeddedEngine, prompt: Any) -> tuple[list[int], bool]:
    """Return a prompt's ids, and whether they were made from text here."""
    text = isinstance(prompt, str)
    ids = engine.family.encode(prompt) if text else token_ids(prompt, "body.prompt")
    if not ids:
        raise BadRequest("The decoder prompt cannot be empty")
    engine.check_ids(ids)
    return ids, text


@frozen
class CompletionsAnswer:
    """The replies to every prompt, the choices numbered through."""

    stamp: Stamp
    runs: list[PromptReplies]
    asked: SamplingRequest

    def replies(self) -> list[Generation]:
        """Return all replies in the order of their choices."""
        return [reply for run in self.runs for reply in run.replies]

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        return {
            **self.stamp.fields(),
            "choices": [self._choice(place, reply) for place, reply in enumerate(self.replies())],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": full(self._prompt(), self.replies(), cached(self.runs[-1].cached, None), None),
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a stream; those of several choices take turns."""
        fields = self.stamp.fields()
        rounds = zip_longest(*(self._streamed(place, reply) for place, reply in enumerate(self.replies())))
        yield from ({**fields, **chunk} for chunk in chain.from_iterable(rounds) if chunk is not None)
        if self.asked.usage_at_end:
            counts = usage(self._prompt(), sum(len(reply.ids) for reply in self.replies()))
            counts["prompt_tokens_details"] = {"cached_tokens": self.runs[0].cached}
            yield {**fields, "choices": [], "usage": counts, "system_fingerprint": FINGERPRINT}

    def _prompt(self) -> int:
        return sum(len(run.replies[0].prompt) for run in self.runs)

    def _choice(self, place: int, reply: Generation) -> dict[str, Any]:
        wanted, scored = self.asked.return_ids, self.asked.scored
        return {
            "index": place,
            "text": reply.text,
            "logprobs": self._logprobs(reply.steps),
            "finish_reason": reply.finish_reason,
            "stop_reason": reply.stop_reason,
            "token_ids": reply.ids if wanted else None,
            "prompt_logprobs": None if scored is None else prompt_logprobs(reply.prompt, scored),
            "prompt_token_ids": reply.prompt if wanted else None,
            "routed_experts": None,
        }

    def _streamed(self, place: int, reply: Generation) -> Iterator[dict[str, Any]]:
        """Yield the chunks of one choice; only the first tells the prompt."""
        sent = offset = 0
        for steps in reply.events():
            first, sent = sent == 0, sent + len(steps)
            choice = self._delta(place, steps, reply if sent == len(reply.steps) else None, offset)
            choice["prompt_token_ids"] = reply.prompt if first and self.asked.return_ids else None
            choice["token_ids"] = [step.id for step in steps] if self.asked.return_ids else None
            offset += sum(map(len, (choice["logprobs"] or {}).get("tokens", [])))
            yield {"choices": [choice], **self._told(reply, sent)}

    def _delta(
        self, place: int, steps: Sequence[SampledId], over: Generation | None, offset: int
    ) -> dict[str, Any]:
        return {
            "index": place,
            "text": "".join(step.text for step in steps),
            "logprobs": self._logprobs(steps, offset),
            "finish_reason": over.finish_reason if over else None,
            "stop_reason": over.stop_reason if over else None,
        }

    def _told(self, reply: Generation, sent: int) -> dict[str, Any]:
        """Return what a chunk says beside its choice."""
        told: dict[str, Any] = {}
        if sent == len(reply.steps) and not self.asked.usage_at_end:
            told["system_fingerprint"] = FINGERPRINT
        if self.asked.usage_always:
            told["usage"] = usage(len(reply.prompt), sent)
        return told

    def _logprobs(self, steps: Sequence[SampledId], offset: int = 0) -> dict[str, Any] | None:
        if self.asked.logprobs is None:
            return None
        return completion_logprobs(steps, self.asked.logprobs, as_ids=self.asked.ids_as_tokens, offset=offset)


async def tokenize(engine: EmbeddedEngine, request: Request) -> Response:
    """Answer with the ids of messages or of a text."""
    body = await Body.read(request)
    if body.get("messages") is None and body.text("prompt") is None:
        raise invalid("missing", "body.prompt", "Field required", dict(body.values))
    engine.check_model(body)
    ids = _rendered(engine, body)
    pieces = [vocabulary().tokenizer.id_to_token(identifier) for identifier in ids]
    answer = {"count": len(ids), "max_model_len": engine.max_model_len, "tokens": ids}
    return JSON({**answer, "token_strs": pieces if body.flag("return_token_strs") else None})


async def detokenize(engine: EmbeddedEngine, request: Request) -> Response:
    """Answer with the text of ids, special tokens too; an id that does not exist has none."""
    body = await Body.read(request)
    ids = token_ids(body.need("tokens"), "body.tokens")
    engine.check_model(body)
    return JSON({"prompt": engine.family.decode([one for one in ids if one < engine.family.vocab_size])})


def _rendered(engine: EmbeddedEngine, body: Body) -> list[int]:
    if body.get("messages") is not None:
        return RenderRequest.read(body).ids(engine.family)
    return engine.family.encode(body.text("prompt") or "")
