"""`POST /v1/chat/completions`: messages in, or ids beside them; a parsed message and its ids out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from attrs import define, evolve, field, frozen
from starlette.requests import Request
from starlette.responses import Response

from .engine import EmbeddedEngine, PromptReplies
from .generation import Generation, SampledId
from .http import JSON, BadRequest, Body, bad, stream, token_ids
from .parsing import Deltas, ParsedText, parse
from .reply_parts import (
    FINGERPRINT,
    Stamp,
    cached,
    call_ids,
    chat_logprobs,
    full,
    prompt_logprobs,
    stamp,
    thoughts,
    usage,
)
from .request import RenderRequest, SamplingRequest, asked
from .vocabulary import CALL, CLOSE, OPEN, THINK, THOUGHT, vocabulary

GIVEN = "kv_transfer_params.prompt_token_ids"
"""Where a chat request may bring the ids of its prompt; its messages are then not rendered."""


@frozen
class Tools:
    """What a request says of its tools."""

    parsed: bool
    """Whether calls are looked for in the reply."""
    must_call: str | None
    """The tool that has to be called, `""` for any, None for none."""
    named: bool
    """Whether it was chosen by name: such a reply ends with `stop`."""


async def chat(engine: EmbeddedEngine, request: Request) -> Response:
    """Answer one request."""
    body = await Body.read(request)
    body.need("messages")
    engine.check_model(body)
    tools = _tools(body)
    rendering = RenderRequest.read(body, renamed=True)
    prompt = _prompt(engine, body, rendering)
    wanted = _asked(engine, body, prompt, tools)
    run = engine.run(prompt, wanted.sampling, wanted.count)
    answer = ChatAnswer(
        stamp=stamp(request, "chatcmpl", "chat.completion", engine.model),
        prompt=prompt,
        prompt_text=engine.family.decode(prompt) if body.flag("return_prompt_text") else None,
        run=run,
        asked=wanted,
        thinking=rendering.thinking,
        tools=tools.parsed,
        calls_end=not tools.named,
        one_call=not body.flag("parallel_tool_calls", default=True),
    )
    return stream(chunks(answer)) if wanted.stream else JSON(answer.body())


def _prompt(engine: EmbeddedEngine, body: Body, rendering: RenderRequest) -> list[int]:
    """Return the ids that the request brings along, or those of its messages."""
    given = body.object("kv_transfer_params").get("prompt_token_ids")
    if given is None:
        return rendering.ids(engine.family)
    ids = _given(given)
    engine.check_ids(ids, GIVEN)
    if len(ids) > engine.max_model_len:
        text = f"Input length ({len(ids)}) exceeds model's maximum context length ({engine.max_model_len})."
        raise BadRequest(text)
    return ids


def _given(ids: Any) -> list[int]:
    """Return the ids that a request brings along, at least one."""
    try:
        found = token_ids(ids, GIVEN)
    except BadRequest:
        found = []
    if not found:
        text = "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers."
        raise bad(text, GIVEN)
    return found


def _asked(engine: EmbeddedEngine, body: Body, prompt: list[int], tools: Tools) -> SamplingRequest:
    """Read the options: without a limit the reply may fill the context."""
    newer = body.integer("max_completion_tokens")
    limit = body.integer("max_tokens") if newer is None else newer
    room = engine.room(prompt, limit, from_text=True)
    shown = body.integer("top_logprobs")
    if shown and not body.flag("logprobs"):
        raise bad("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    logprobs = (shown or 0) if body.flag("logprobs") else None
    return asked(body, max_tokens=room, logprobs=logprobs, must_call=tools.must_call)


def _tools(body: Body) -> Tools:
    """Read the tools and the choice among them."""
    tools, choice = body.objects("tools"), body.get("tool_choice")
    if tools == []:
        text = (
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
        )
        raise bad(text, "tools")
    if choice in (None, "none"):
        return Tools(parsed=tools is not None and choice is None, must_call=None, named=False)
    if not tools:
        raise bad("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if choice == "auto":
        return Tools(parsed=True, must_call=None, named=False)
    if choice == "required":
        return Tools(parsed=True, must_call="", named=False)
    return Tools(parsed=True, must_call=_chosen(choice, tools), named=True)


def _chosen(choice: Any, tools: list[dict[str, Any]]) -> str:
    """Return the name that an object names, which must be a tool's."""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    names = [tool["function"].get("name") for tool in tools if isinstance(tool.get("function"), dict)]
    if not isinstance(name, str):
        text = (
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are '
        )
        raise bad(text + "supported.", "tool_choice")
    if name not in names:
        raise bad(
            "The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice"
        )
    return name


@frozen(kw_only=True)
class ChatAnswer:
    """The replies to one prompt and everything that decides how they are shown."""

    stamp: Stamp
    prompt: list[int]
    prompt_text: str | None
    run: PromptReplies
    asked: SamplingRequest
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

    def _parsed(self, reply: Generation) -> ParsedText:
        parsed = parse(reply.text, thinking=self.thinking, tools=self.tools)
        if self.asked.sampling.must_call is not None:
            parsed = evolve(parsed, content=parsed.content or "")
        return evolve(parsed, calls=parsed.calls[:1]) if self.one_call else parsed


Chunk = dict[str, Any]


def chunks(answer: ChatAnswer) -> Iterator[Chunk]:
    """Yield the chunks; those of several choices take turns."""
    fields = evolve(answer.stamp, kind="chat.completion.chunk").fields()
    choices = [StreamedChoice(answer, place, reply) for place, reply in enumerate(answer.run.replies)]
    yield from ({**fields, **choice.first()} for choice in choices)
    rounds = zip_longest(*(choice.chunks() for choice in choices))
    yield from ({**fields, **chunk} for chunk in chain.from_iterable(rounds) if chunk is not None)
    if answer.asked.usage_at_end:
        counts = _without_none(answer.usage())
        yield {**fields, "choices": [], "usage": counts, "system_fingerprint": FINGERPRINT}


@define
class StreamedChoice:
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

    def _chunk(self, steps: Sequence[SampledId], delta: Chunk, *, over: bool) -> Chunk:
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
