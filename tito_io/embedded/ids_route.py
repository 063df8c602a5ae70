"""`POST /inference/v1/generate`: ids in, ids out, each with its sampling mask.

The form is that of vLLM 0.33 (`vllm/entrypoints/scale_out/token_in_token_out/protocol.py`), started with
`--return-sampling-mask --logprobs-mode processed_logprobs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from .engine import EmbeddedEngine, PromptReplies
from .generation import Generation
from .http import JSON, BadRequest, Body, Stamp, detailed_usage, stream, token_ids, unsupported, usage
from .logprobs import SampledId, shown_text
from .request import SamplingRequest
from .support import Truncation, support

BESIDE = ("model", "return_token_ids", "stream", "stream_options")
"""Parameters that stand beside `sampling_params`."""
REFUSED = ("content_parts", "features", "kv_transfer_params", "parse_context")
TEXT, TOKENS = "text", "tokens"


async def generate_ids(engine: EmbeddedEngine, request: Request) -> Response:
    """Answer one request."""
    body = await Body.read(request)
    parameters = body.nested("sampling_params", required=True)
    for name in (*(name for name in REFUSED if body.values.get(name)), *_unknown_mode(body)):
        raise unsupported(name)
    engine.check_model(body)
    prompt = token_ids(body.given("token_ids"), "body.token_ids")
    if not prompt:
        raise BadRequest("The decoder prompt cannot be empty")
    engine.check_ids(prompt)
    beside = {name: body.values[name] for name in BESIDE if name in body.values}
    flat = Body({**parameters.values, **beside}, parameters.path)
    limit = engine.reply_limit(prompt, flat.integer("max_tokens"), from_text=False)
    wanted = SamplingRequest.read(flat, max_tokens=limit, logprobs=flat.integer("logprobs"))
    wanted = wanted.after_reasoning() if body.flag("reasoning_ended") else wanted
    answer = IdsAnswer(
        stamp=Stamp.of(request, "generate-tokens", "", engine.model),
        run=engine.run(prompt, wanted.sampling, wanted.count),
        request=wanted,
        mode=body.values.get("output_mode") or TOKENS,
        truncation=Truncation.read(flat),
    )
    return stream(answer.chunks()) if wanted.stream else JSON(answer.body())


def _unknown_mode(body: Body) -> Sequence[str]:
    return () if body.values.get("output_mode") in (None, TEXT, TOKENS) else ("output_mode",)


@frozen(kw_only=True)
class IdsAnswer:
    """The replies to a prompt; in the mode `text` with their text, and log-probabilities without ids."""

    stamp: Stamp
    run: PromptReplies
    request: SamplingRequest
    mode: str
    truncation: Truncation

    def body(self) -> dict[str, Any]:
        """Return the JSON body of a whole answer."""
        replies = self.run.replies
        counts = detailed_usage(
            len(replies[0].prompt), replies, cached=self.run.cached, created=None, reasoning=None
        )
        choices = [
            {**self._choice(index, reply.steps, over=reply), **self._text(reply.text)}
            for index, reply in enumerate(replies)
        ]
        named = {"model": self.stamp.model, "created": self.stamp.created}
        return {**self._top(), **self._prompt(), **named, "usage": counts, "choices": choices}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a stream; those of several choices take turns, the first has the prompt."""
        rounds = zip_longest(*(self._streamed(index, reply) for index, reply in enumerate(self.run.replies)))
        prompt = self._prompt()
        for choice in chain.from_iterable(rounds):
            if choice is not None:
                yield {**self._top(), **prompt, "choices": [choice]}
                prompt = {}
        if self.request.usage_at_end:
            sampled = sum(len(reply.ids) for reply in self.run.replies)
            counts = usage(len(self.run.replies[0].prompt), sampled)
            counts["prompt_tokens_details"] = {"cached_tokens": self.run.cached}
            yield {**self._top(), "choices": [], "usage": counts}

    def _top(self) -> dict[str, Any]:
        return {"request_id": self.stamp.id, "output_mode": self.mode}

    def _prompt(self) -> dict[str, Any]:
        return {"prompt_token_ids": self.run.replies[0].prompt} if self.request.return_ids else {}

    def _streamed(self, index: int, reply: Generation) -> Iterator[dict[str, Any]]:
        sent = 0
        for steps in reply.events():
            sent += len(steps)
            over = reply if sent == len(reply.steps) else None
            text = "".join(step.text for step in steps)
            yield {**self._choice(index, steps, over=over), **self._text(text)}

    def _choice(self, index: int, steps: Sequence[SampledId], *, over: Generation | None) -> dict[str, Any]:
        """Return some ids of a choice with their masks; how it ended where it is `over` with them."""
        masks = [support(step, self.truncation) for step in steps]
        return {
            "index": index,
            "finish_reason": None if over is None else over.finish_reason,
            "stop_reason": None if over is None else over.stop_reason,
            "token_ids": [step.id for step in steps],
            "routed_experts": None,
            "sampling_mask": [list(mask) for mask in masks],
            "weight_versions": None,
            "logprobs": None if self.request.logprobs is None else {"content": self._logprobs(steps, masks)},
        }

    def _logprobs(
        self, steps: Sequence[SampledId], masks: Sequence[Mapping[int, float]]
    ) -> list[dict[str, Any]]:
        entries = list[dict[str, Any]]()
        for step, mask in zip(steps, masks, strict=True):
            value, text = mask[step.id], shown_text(step)
            if self.mode == TOKENS:
                entries.append({"token_id": step.id, "logprob": value, "rank": [*mask].index(step.id) + 1})
            else:
                shown: dict[str, Any] = {"token": text, "bytes": list(text.encode()), "top_logprobs": []}
                entries.append({**shown, "logprob": value})
        return entries

    def _text(self, text: str) -> dict[str, Any]:
        return {"text": text} if self.mode == TEXT else {}
