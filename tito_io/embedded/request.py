"""Read requests: the sampling parameters that chat and completions share, and the messages to render."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, frozen

from tito_core import InputError, TemplateRefused
from tito_io.engines.constraint import ANY_OBJECT
from tito_io.families.family import Family
from tito_io.families.preprocessing.message_rules import MEDIA

from .generation import SamplingSettings
from .http import BadRequest, Body, bad_value, invalid, token_ids, unsupported
from .structured import Format, UnsupportedGrammarError, check_grammar, check_schema

MOST_LOGPROBS = 20
REFUSED = (
    *("echo", "logit_bias", "allowed_token_ids", "bad_words"),
    *("use_beam_search", "suffix", "truncate_prompt_tokens", "prompt_embeds", "logprob_token_ids"),
)
"""Parameters without which a reply is not what was asked for. What only shapes a distribution is ignored."""
MOST_TURNS = 1_024
"""Turns of one request. They are drawn at once, and nothing else is answered meanwhile."""
RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: value >= 0, "non-negative"),
    "top_p": (lambda value: 0 < value <= 1, "in (0, 1]"),
    "min_p": (lambda value: 0 <= value <= 1, "in [0, 1]"),
    "top_k": (lambda value: value == int(value) >= -1, "0 or -1 (disable), or at least 1"),
    "presence_penalty": (lambda value: -2 <= value <= 2, "in [-2, 2]"),  # noqa: PLR2004  # vLLM's bounds
    "frequency_penalty": (lambda value: -2 <= value <= 2, "in [-2, 2]"),  # noqa: PLR2004  # vLLM's bounds
    "repetition_penalty": (lambda value: value > 0, "greater than zero"),
}
"""The values that vLLM takes (`SamplingParams._verify_args`). All but the temperature change nothing here."""


@frozen(kw_only=True)
class SamplingRequest:
    """What a request asks of its replies, and how they are written."""

    sampling: SamplingSettings
    count: int
    """How many replies to each prompt."""
    logprobs: int | None
    """How many top ids to show for each sampled id; None for no log-probabilities at all."""
    prompt_logprobs: int | None
    """How many other ids to show for each id of the prompt; None where the prompt is not scored."""
    return_ids: bool
    ids_as_tokens: bool
    """Whether a token is shown as `token_id:7` instead of its text."""
    stream: bool
    usage_at_end: bool
    usage_always: bool

    @classmethod
    def read(
        cls, body: Body, *, max_tokens: int, logprobs: int | None, forced: Format | None = None
    ) -> SamplingRequest:
        """Read the parameters that both routes share; those that each route reads itself are arguments.

        `forced` is the grammar of tool calls that the request demands; others then have no effect.
        """
        _check_supported(body)
        stream, options = body.flag("stream"), body.nested("stream_options")
        if options.values and not stream:
            raise bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
        usage_at_end = options.flag("include_usage")
        greedy = body.number("temperature") == 0
        sampling, count = _sampling(body, max_tokens, forced, greedy=greedy), _count(body, greedy=greedy)
        logprobs, scored = _checked_logprobs(logprobs), body.integer("prompt_logprobs")
        if scored and stream:
            raise bad_value("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
        return cls(
            sampling=sampling,
            count=count,
            logprobs=logprobs,
            prompt_logprobs=_checked_logprobs(scored),
            return_ids=body.flag("return_token_ids"),
            ids_as_tokens=body.flag("return_tokens_as_token_ids"),
            stream=stream,
            usage_at_end=usage_at_end,
            usage_always=usage_at_end and options.flag("continuous_usage_stats"),
        )

    def after_reasoning(self) -> SamplingRequest:
        """Return a request whose grammar binds from the first id on."""
        return evolve(self, sampling=evolve(self.sampling, reasoning_ended=True))


def _check_supported(body: Body) -> None:
    for name in REFUSED:
        if body.values.get(name):
            raise unsupported(name)
    # With a reasoning parser, the real server answers this one with null for ids and log-probabilities.
    if not body.flag("include_reasoning", default=True):
        raise unsupported("include_reasoning")


def _sampling(body: Body, max_tokens: int, forced: Format | None, *, greedy: bool) -> SamplingSettings:
    min_tokens = body.integer("min_tokens") or 0
    for name, (fits, bounds) in RANGES.items():
        value = body.number(name)
        if value is not None and not fits(value):
            shown = value if name == "top_k" else float(value)
            raise bad_value(f"{name} must be {bounds}, got {shown}.", name, shown)
    if max_tokens < 1:
        raise bad_value(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens)
    if not 0 <= min_tokens <= max_tokens:
        text = f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
        raise BadRequest(text)
    stop, stop_ids = body.texts("stop"), body.values.get("stop_token_ids")
    if "" in stop:
        raise BadRequest("stop cannot contain an empty string.")
    return SamplingSettings(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        seed=None if greedy else body.integer("seed"),  # at temperature 0 the seed decides nothing
        stop=tuple(stop),
        stop_token_ids=frozenset(() if stop_ids is None else token_ids(stop_ids, body.at("stop_token_ids"))),
        ignore_eos=body.flag("ignore_eos"),
        keep_stop=body.flag("include_stop_str_in_output"),
        skip_special=body.flag("skip_special_tokens", default=True),
        grammar=grammar_of(body) if forced is None else forced,
    )


def schema_of(body: Body) -> Mapping[str, Any] | None:
    """Return the schema that `response_format` demands of the content; None where it demands none."""
    given = body.nested("response_format")
    kind = given.values.get("type", "text")
    if kind == "json_schema":
        schema = given.nested("json_schema", required=True).required("schema", dict)
        _checked(check_schema, schema, "response_format.json_schema.schema")
        return dict(schema)
    if kind not in ("text", "json_object"):
        raise unsupported("response_format")
    return ANY_OBJECT if kind == "json_object" else None


def grammar_of(body: Body) -> Format | None:
    """Return the grammar that a request demands by `structured_outputs` or `response_format`."""
    given = {name: one for name, one in body.nested("structured_outputs").values.items() if one is not None}
    if not given:
        schema = schema_of(body)
        return None if schema is None else {"type": "json_schema", "json_schema": schema}
    if len(given) > 1:
        raise BadRequest(
            "You can only use one kind of structured outputs constraint but multiple are specified"
        )
    name, value = next(iter(given.items()))
    path = f"structured_outputs.{name}"
    if name not in ("json", "json_object", "structural_tag"):
        raise unsupported(path)
    value = _parsed(value, path) if name != "json_object" else ANY_OBJECT
    if name == "structural_tag":
        tag = value.get("format") if isinstance(value, dict) else None
        _checked(check_grammar, tag, path)
        return dict(tag)  # type: ignore[arg-type]  # the check demands an object
    _checked(check_schema, value, path)
    return {"type": "json_schema", "json_schema": value}


def _parsed(value: Any, path: str) -> Any:
    """Return an object that may come as its JSON text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise bad_value("Invalid JSON grammar specification.", path) from None


def _checked(check: Callable[[object, str], None], value: object, path: str) -> None:
    try:
        check(value, path)
    except UnsupportedGrammarError as error:
        raise bad_value(str(error), path) from error


def _count(body: Body, *, greedy: bool) -> int:
    count = body.integer("n")
    if count is None:
        return 1
    if count < 1:
        raise BadRequest(f"n must be at least 1, got {count}.")
    if count > MOST_TURNS:
        raise BadRequest(f"n must be at most {MOST_TURNS}, got {count}.")
    if count > 1 and greedy:
        raise BadRequest(f"n must be 1 when using greedy sampling, got {count}.")
    return count


def _checked_logprobs(count: int | None) -> int | None:
    if count is not None and not 0 <= count <= MOST_LOGPROBS:
        text = f"Requested sample logprobs of {count}, which is greater than max allowed: {MOST_LOGPROBS}"
        raise bad_value(text, "logprobs", count)
    return count


CONTINUE, OPEN_TURN = "continue_final_message", "add_generation_prompt"


@frozen
class RenderRequest:
    """The messages and tools of a request, and how its prompt ends."""

    messages: list[Body]
    tools: list[dict[str, Any]] | None
    add_generation_prompt: bool
    continue_final_message: bool
    template_args: Mapping[str, Any]

    @classmethod
    def read(cls, body: Body, *, two_names: bool = False) -> RenderRequest:
        """Read what to render; raises `BadRequest` for a chat template, which is not trusted.

        With `two_names`, `reasoning_content` is read, too. The real server does that for chat alone: its
        `/tokenize` renders such a message without its reasoning.
        """
        if body.values.get("chat_template") is not None:
            raise BadRequest("A chat template in a request is not trusted; render on your side and send ids.")
        open_turn, continued = _prompt_end(body)
        messages = body.nested_list("messages")
        if not two_names:
            messages = [Body(_without(one.values, "reasoning_content"), one.path) for one in messages]
        body.nested_list("tools")  # for its errors; the template gets the list as it came, empty or null
        # What a request says elsewhere cannot be said again as a variable of the template.
        fixed = {"messages", "tools", "documents", OPEN_TURN, CONTINUE}
        given = body.nested("chat_template_kwargs").values
        template_args = {name: value for name, value in given.items() if name not in fixed}
        return cls(messages, body.values.get("tools"), open_turn, continued, template_args)

    @property
    def thinking(self) -> bool:
        """Whether the reply may begin with reasoning."""
        return self.template_args.get("enable_thinking", True) is not False

    def ids(self, family: Family) -> list[int]:
        """Return the prompt's ids; raises `BadRequest` where the chat template refuses the messages."""
        if not self.messages:
            text = "Cannot apply chat template to an empty conversation. Provide at least one message."
            raise BadRequest(text)
        try:
            text = family.text(
                [_message(message) for message in self.messages],
                tools=self.tools,
                add_generation_prompt=self.add_generation_prompt,
                continue_final_message=self.continue_final_message,
                **self.template_args,
            )
            return family.encode(text)
        except (TemplateRefused, InputError) as error:
            raise BadRequest(str(error.__cause__ or error)) from error


def _without(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _prompt_end(body: Body) -> tuple[bool, bool]:
    """Return whether a turn is opened, and whether the last message goes on.

    Opening is the default, so that a message which goes on needs both flags. The real server first compares
    them before it parses them, so that the word "false" counts as set; null is not a value of either.
    """
    if body.values.get(CONTINUE) and body.values.get(OPEN_TURN):
        raise BadRequest(f"Cannot set both `{CONTINUE}` and `{OPEN_TURN}` to True.")
    for name in (OPEN_TURN, CONTINUE):
        if body.values.get(name, True) is None:
            raise invalid("bool_type", body.at(name), "Input should be a valid boolean", None)
    open_turn, continued = body.flag(OPEN_TURN, default=True), body.flag(CONTINUE)
    if open_turn and continued:
        text = f"{CONTINUE} and {OPEN_TURN} are not compatible"
        raise BadRequest(f"{text}, and the latter is the default; set it to false.")
    return open_turn, continued


def _message(message: Body) -> Mapping[str, Any]:
    """Return a message whose types are those of the request's schema; its rendering checks the rest."""
    values, role = message.values, message.values.get("role")
    if not isinstance(role, str):
        raise message.missing(message.at("role"), str)
    content = values.get("content", "")
    if not isinstance(content, str | list) and not (content is None and role == "assistant"):
        raise message.wrong_type(message.at("content"), str, content)
    for part in message.nested_list("content") if isinstance(content, list) else ():
        if part.values.get("type") in MEDIA:
            kind = part.values["type"]
            text = f"This model takes text alone; a content part of type {kind!r} cannot be answered."
            raise BadRequest(text)
    if role == "assistant" and values.get("tool_calls"):
        message.optional("tool_calls", list)
        for place, call in enumerate(values["tool_calls"]):
            _check_call(call, f"{message.path}.tool_calls.{place}")
    return values


def _check_call(call: Any, path: str) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        text = "chat completions only support assistant tool_calls of type 'function'."
        raise bad_value(text, "tool_calls")
    if not isinstance(function.get("arguments"), str):
        written = function.get("arguments")
        raise invalid("string_type", f"{path}.arguments", "Input should be a valid string", written)
