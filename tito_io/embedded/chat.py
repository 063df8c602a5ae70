"""`POST /v1/chat/completions`: messages or prompt ids in, a parsed message and its ids out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from typing import Any

from attrs import define, evolve, field, frozen
from starlette.requests import Request
from starlette.responses import Response

from tito_io.engines.constraint import Constraint
from tito_io.engines.grammar import CallForm, answer_grammar
from tito_io.engines.replies.hermes import Tags

from .engine import EmbeddedEngine, PromptReplies
from .generation import Generation
from .http import (
    FINGERPRINT,
    JSON,
    BadRequest,
    Body,
    Stamp,
    bad_value,
    detailed_usage,
    stream,
    token_ids,
    usage,
)
from .logprobs import SampledId, chat_logprobs, prompt_logprobs
from .parsing import DeltaParser, parse, reasoning_closed, reasoning_tokens
from .request import RenderRequest, SamplingRequest, schema_of
from .rng import digest, pack
from .structured import Format, UnsupportedGrammarError, check_grammar
from .vocabulary import END_TOOL_CALL, TAGS, TOOL_CALL, vocabulary

GIVEN_IDS = "kv_transfer_params.prompt_token_ids"
"""Where a chat request may bring the ids of its prompt; its messages are then not rendered."""


async def chat(engine: EmbeddedEngine, request: Request) -> Response:
    """Answer one request."""
    body = await Body.read(request)
    body.given("messages")
    engine.check_model(body)
    tools = ToolChoice.read(body)
    rendering = RenderRequest.read(body, two_names=True)
    prompt = _prompt(engine, body, rendering)
    wanted = _sampling_request(engine, body, prompt, tools)
    answer = ChatAnswer(
        stamp=Stamp.of(request, "chatcmpl", "chat.completion", engine.model),
        prompt=prompt,
        run=engine.run(prompt, wanted.sampling, wanted.count),
        request=wanted,
        prompt_text=engine.family.decode(prompt) if body.flag("return_prompt_text") else None,
        thinking=rendering.thinking,
        tools=tools,
    )
    return stream(answer.chunks()) if wanted.stream else JSON(answer.body())


@frozen
class ToolChoice:
    """A request's fields about tool calls."""

    parsed: bool
    """Whether the reply is searched for tool calls."""
    must_call: tuple[str, ...] | None = None
    """The tool that has to be called; none of them for any, None where no call has to be made."""
    named: bool = False
    """Whether that tool was chosen by name: such a reply ends with the finish reason `stop`."""

    @classmethod
    def read(cls, body: Body) -> ToolChoice:
        """Read the tools and the choice among them."""
        tools, choice = body.nested_list("tools"), body.values.get("tool_choice")
        if body.values.get("tools") == []:
            text = "`tools` must not be an empty array. Either provide at least one tool or omit the field "
            raise bad_value(text + "entirely.", "tools")
        if choice in (None, "none"):
            return cls(parsed=bool(tools) and choice is None)
        if not tools:
            raise bad_value("When using `tool_choice`, `tools` must be set.", "tool_choice")
        if choice in ("auto", "required"):
            return cls(parsed=True, must_call=() if choice == "required" else None)
        return cls(parsed=True, must_call=(_named_tool(choice, tools),), named=True)


def _named_tool(choice: Any, tools: list[Body]) -> str:
    """Return the name of the tool that a `tool_choice` names."""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    functions = [tool.values.get("function") for tool in tools]
    if not isinstance(name, str):
        text = f"Invalid value for `tool_choice`: {choice}! "
        text += 'Only named tools, "none", "auto" or "required" are supported.'
        raise bad_value(text, "tool_choice")
    if name not in [one.get("name") for one in functions if isinstance(one, dict)]:
        text = "The tool specified in `tool_choice` does not match any of the specified `tools`"
        raise bad_value(text, "tool_choice")
    return name


def _prompt(engine: EmbeddedEngine, body: Body, rendering: RenderRequest) -> list[int]:
    """Return the ids that the request brings along, or those of its messages."""
    given, ids = body.nested("kv_transfer_params").values.get("prompt_token_ids"), list[int]()
    if given is None:
        return rendering.ids(engine.family)
    with suppress(BadRequest):
        ids = token_ids(given, GIVEN_IDS)
    if not ids:
        text = "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers."
        raise bad_value(text, GIVEN_IDS)
    engine.check_ids(ids, GIVEN_IDS)
    if len(ids) > engine.max_model_len:
        text = f"Input length ({len(ids)}) exceeds model's maximum context length ({engine.max_model_len})."
        raise BadRequest(text)
    return ids


def _sampling_request(
    engine: EmbeddedEngine, body: Body, prompt: list[int], tools: ToolChoice
) -> SamplingRequest:
    newer = body.integer("max_completion_tokens")
    limit = engine.reply_limit(prompt, body.integer("max_tokens") if newer is None else newer, from_text=True)
    count, wanted = body.integer("top_logprobs"), body.flag("logprobs")
    if count and not wanted:
        raise bad_value("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    logprobs = (count or 0) if wanted else None
    forced = _call_grammar(body, tools)
    return SamplingRequest.read(body, max_tokens=limit, logprobs=logprobs, forced=forced)


def _call_grammar(body: Body, choice: ToolChoice) -> Format | None:
    """Return the grammar of a reply whose calls are constrained; None where they are not.

    vLLM makes it from the tool parser's own form, and ignores other grammars where a call is demanded.
    """
    one_call = not body.flag("parallel_tool_calls", default=True)
    both = body.values.get("structured_outputs") is not None
    if choice.must_call is None and (both or not choice.parsed or not one_call):
        return None
    schema = schema_of(body) if choice.must_call is None else None
    constraint = Constraint(schema=schema, must_call=choice.must_call, one_call=one_call)
    words = vocabulary()
    tags = Tags({tag: words.id(tag) for tag in TAGS})
    form = CallForm(TOOL_CALL + '\n{"name": "', '", "arguments": ', "}\n" + END_TOOL_CALL, "\n")
    tools = [tool.values for tool in body.nested_list("tools")]
    grammar = answer_grammar(constraint, tools, form, tags)
    try:
        check_grammar(grammar, "tools")
    except UnsupportedGrammarError as error:
        raise bad_value(str(error), "tools") from error
    return grammar


Chunk = dict[str, Any]


@frozen(kw_only=True)
class ChatAnswer:
    """The replies to one prompt, and what decides how they are written."""

    stamp: Stamp
    prompt: list[int]
    run: PromptReplies
    request: SamplingRequest
    prompt_text: str | None
    thinking: bool
    tools: ToolChoice

    def body(self) -> dict[str, Any]:
        """Return the JSON body of a whole answer."""
        count = self.request.prompt_logprobs
        return {
            **self.stamp.fields(),
            "choices": [self._choice(index, reply) for index, reply in enumerate(self.run.replies)],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self._usage(),
            "prompt_logprobs": None if count is None else prompt_logprobs(self.prompt, count),
            "prompt_token_ids": self.prompt if self.request.return_ids else None,
            "prompt_text": self.prompt_text,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of a stream; those of several choices take turns."""
        fields = evolve(self.stamp, kind="chat.completion.chunk").fields()
        choices = [EmbeddedStreamedChoice(self, index, reply) for index, reply in enumerate(self.run.replies)]
        yield from ({**fields, **choice.first()} for choice in choices)
        rounds = zip_longest(*(choice.chunks() for choice in choices))
        yield from ({**fields, **chunk} for chunk in chain.from_iterable(rounds) if chunk is not None)
        if self.request.usage_at_end:
            counts = _without_none(self._usage())
            yield {**fields, "choices": [], "usage": counts, "system_fingerprint": FINGERPRINT}

    def finish_reason(self, reply: Generation, *, called: bool) -> str:
        """Return the finish reason of a choice in which tool calls were found or not."""
        return "tool_calls" if called and not self.tools.named else reply.finish_reason

    def logprobs(self, steps: Sequence[SampledId]) -> dict[str, Any] | None:
        """Return the log-probabilities of some ids, None where the request wants none."""
        if self.request.logprobs is None:
            return None
        return chat_logprobs(steps, self.request.logprobs, as_ids=self.request.ids_as_tokens)

    def _usage(self) -> dict[str, Any]:
        reasoning = sum(reasoning_tokens(one.ids, thinking=self.thinking) for one in self.run.replies)
        return detailed_usage(
            len(self.prompt), self.run.replies, cached=self.run.cached, created=0, reasoning=reasoning
        )

    def _choice(self, index: int, reply: Generation) -> dict[str, Any]:
        parsed = parse(reply.text, thinking=self.thinking, tools=self.tools.parsed)
        if self.tools.must_call is not None:
            parsed = evolve(parsed, content=parsed.content or "")
        return {
            "index": index,
            "message": parsed.message(call_ids(reply)),
            "logprobs": self.logprobs(reply.steps),
            "finish_reason": self.finish_reason(reply, called=bool(parsed.calls)),
            "stop_reason": reply.stop_reason,
            "token_ids": reply.ids if self.request.return_ids else None,
            "routed_experts": None,
        }


@define
class EmbeddedStreamedChoice:
    """One of the replies while it is streamed."""

    answer: ChatAnswer
    index: int
    reply: Generation
    _sent: int = field(default=0, init=False)
    _called: bool = field(default=False, init=False)

    def first(self) -> Chunk:
        """Return the chunk that names the role, and the prompt's ids and text where they are wanted."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": self.index, "delta": delta, "logprobs": None, "finish_reason": None}
        ids = self.answer.prompt if self.answer.request.return_ids else None
        prompt = {"prompt_token_ids": ids, "prompt_text": self.answer.prompt_text}
        return {"choices": [choice], **self._usage(), **prompt}

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks with ids; an empty one is left out, unless the request wants ids."""
        request = self.answer.request
        thinking = self.answer.thinking and not reasoning_closed(self.reply.prompt)
        deltas = DeltaParser(thinking, self.answer.tools.parsed, call_ids(self.reply))
        for steps in self.reply.events():
            self._sent += len(steps)
            over = self._sent == len(self.reply.steps)
            delta = deltas.feed("".join(step.text for step in steps), final=over)
            self._called = self._called or "tool_calls" in delta
            # Ids may come without text, such as those of a tag. vLLM before 0.13 lost them here.
            if delta or over or request.return_ids or request.logprobs is not None:
                yield self._chunk(steps, delta, over=over)

    def _chunk(self, steps: Sequence[SampledId], delta: Chunk, *, over: bool) -> Chunk:
        request, reason = self.answer.request, None
        choice = {"index": self.index, "delta": delta, "logprobs": self.answer.logprobs(steps)}
        if over:
            # A whole answer says `tool_calls` even where a limit cut the reply; a stream says `length` then.
            called = self._called and self.reply.finish_reason == "stop"
            reason = self.answer.finish_reason(self.reply, called=called)
        choice |= {"finish_reason": reason, **({"stop_reason": self.reply.stop_reason} if over else {})}
        choice["token_ids"] = [step.id for step in steps] if request.return_ids else None
        last = over and not request.usage_at_end
        return {"choices": [choice], **({"system_fingerprint": FINGERPRINT} if last else {}), **self._usage()}

    def _usage(self) -> Chunk:
        """Return the counts so far, where they are wanted with every chunk."""
        if not self.answer.request.usage_always:
            return {}
        reasoning = reasoning_tokens(self.reply.ids[: self._sent], thinking=self.answer.thinking)
        details = {"completion_tokens_details": {"reasoning_tokens": reasoning}}
        return {"usage": {**usage(len(self.answer.prompt), self._sent), **details}}


def call_ids(reply: Generation) -> Callable[[int], str]:
    """Return a function that names a reply's tool calls, alike in a stream and in a whole answer."""
    key = digest("call", pack(reply.prompt), pack(reply.ids))
    return lambda place: f"chatcmpl-tool-{digest(key, place):016x}"


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(one) if isinstance(one, dict) else one
        for key, one in value.items()
        if one is not None
    }
