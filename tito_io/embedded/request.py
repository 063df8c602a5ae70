"""What a request for a reply asks for, apart from its prompt; chat and completions ask almost alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from tito_core import InputError, TemplateRefused
from tito_io.families.family import Family

from .generation import SamplingSettings
from .http import BadRequest, Body, bad, invalid, unsupported

MOST_LOGPROBS = 20
REFUSED = (
    *("echo", "logit_bias", "allowed_token_ids", "bad_words", "structured_outputs"),
    *("use_beam_search", "suffix", "truncate_prompt_tokens", "prompt_embeds", "logprob_token_ids"),
)
"""Without these a reply is not what was asked for. What only shapes a distribution is ignored instead."""


@frozen(kw_only=True)
class SamplingRequest:
    """The options that decide what a reply looks like on the wire, and which reply it is."""

    sampling: SamplingSettings
    count: int
    """How many replies to each prompt."""
    logprobs: int | None
    """How many other ids to show at each place; None for no log-probabilities at all."""
    scored: int | None
    """How many other ids to show at each place of the prompt; None where the prompt is not scored."""
    return_ids: bool
    ids_as_tokens: bool
    """Whether a token is shown as `token_id:7` instead of its text."""
    stream: bool
    usage_at_end: bool
    usage_always: bool


def asked(body: Body, *, max_tokens: int, logprobs: int | None, **sampling: Any) -> SamplingRequest:
    """Read the options that both routes share; `sampling` are those that only one has."""
    _possible(body)
    stream, options = body.flag("stream"), Body(body.object("stream_options"))
    if options.values and not stream:
        raise bad("Stream options can only be defined when `stream=True`.", "stream_options")
    greedy = body.number("temperature") == 0
    at_end = options.flag("include_usage")
    return SamplingRequest(
        sampling=_checked(body, max_tokens, greedy=greedy, **sampling),
        count=_count(body, greedy=greedy),
        logprobs=_few(logprobs),
        scored=_scored(body, stream=stream),
        return_ids=body.flag("return_token_ids"),
        ids_as_tokens=body.flag("return_tokens_as_token_ids"),
        stream=stream,
        usage_at_end=at_end,
        usage_always=at_end and options.flag("continuous_usage_stats"),
    )


def _possible(body: Body) -> None:
    """Refuse what would make another reply than the sampler can give."""
    for name in REFUSED:
        if body.get(name):
            raise unsupported(name)
    if body.object("response_format").get("type", "text") != "text":
        raise unsupported("response_format")
    if not body.flag("include_reasoning", default=True):
        raise unsupported("include_reasoning")


def _scored(body: Body, *, stream: bool) -> int | None:
    count = body.integer("prompt_logprobs")
    if count and stream:
        raise bad("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    return _few(count)


def _checked(body: Body, max_tokens: int, *, greedy: bool, **sampling: Any) -> SamplingSettings:
    """Read what decides the ids. Without temperature the seed decides nothing."""
    temperature, least = body.number("temperature"), body.integer("min_tokens") or 0
    if temperature is not None and temperature < 0:
        told = float(temperature)
        raise bad(f"temperature must be non-negative, got {told}.", "temperature", told)
    if max_tokens < 1:
        raise bad(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens)
    if not 0 <= least <= max_tokens:
        raise BadRequest(f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {least}.")
    stop = body.texts("stop")
    if "" in stop:
        raise BadRequest("stop cannot contain an empty string.")
    return SamplingSettings(
        max_tokens=max_tokens,
        min_tokens=least,
        seed=None if greedy else body.integer("seed"),
        stop=tuple(stop),
        stop_token_ids=frozenset(body.ids("stop_token_ids")),
        ignore_eos=body.flag("ignore_eos"),
        keep_stop=body.flag("include_stop_str_in_output"),
        skip_special=body.flag("skip_special_tokens", default=True),
        **sampling,
    )


def _count(body: Body, *, greedy: bool) -> int:
    count = body.integer("n")
    if count is None:
        return 1
    if count < 1:
        raise BadRequest(f"n must be at least 1, got {count}.")
    if count > 1 and greedy:
        raise BadRequest(f"n must be 1 when using greedy sampling, got {count}.")
    return count


def _few(logprobs: int | None) -> int | None:
    if logprobs is not None and not 0 <= logprobs <= MOST_LOGPROBS:
        text = f"Requested sample logprobs of {logprobs}, which is greater than max allowed: {MOST_LOGPROBS}"
        raise bad(text, "logprobs", logprobs)
    return logprobs


def readied(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages for the template; at least one is needed."""
    if not messages:
        raise BadRequest("Cannot apply chat template to an empty conversation. Provide at least one message.")
    return [_readied(message, f"body.messages.{place}") for place, message in enumerate(messages)]


def _readied(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise invalid("missing", f"{place}.role", "Field required", dict(message))
    known = {
        "role": "system" if role == "developer" else role,
        "content": _text(message.get("content", ""), place, optional=role == "assistant"),
    }
    if role == "assistant":
        known |= _thought(message) | _calls(message, place)
    if role == "tool" and "tool_call_id" in message:
        known["tool_call_id"] = message["tool_call_id"]
    return known | ({"name": message["name"]} if isinstance(message.get("name"), str) else {})


def _text(content: Any, place: str, *, optional: bool) -> str:
    """Return the text of a content, parts on lines of their own; only an assistant's may be null."""
    if isinstance(content, str) or (content is None and optional):
        return content or ""
    if not isinstance(content, list):
        raise invalid("string_type", f"{place}.content", "Input should be a valid string", content)
    return "\n".join(_part(part, f"{place}.content.{at}") for at, part in enumerate(content))


def _part(part: Any, place: str) -> str:
    if not isinstance(part, dict):
        raise invalid("dict_type", place, "Input should be a valid dictionary", part)
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text", "refusal"):
        return str(part.get("refusal" if kind == "refusal" else "text") or "")
    raise BadRequest(f"This model takes text alone; a content part of type {kind!r} cannot be answered.")


def _thought(message: Mapping[str, Any]) -> dict[str, Any]:
    thought = message.get("reasoning")
    return {} if thought is None else {"reasoning": thought, "reasoning_content": thought}


def _calls(message: Mapping[str, Any], place: str) -> dict[str, Any]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise invalid("list_type", f"{place}.tool_calls", "Input should be a valid list", calls)
    found = [_call(call, f"{place}.tool_calls.{at}") for at, call in enumerate(calls)]
    return {"tool_calls": found} if found else {}


def _call(call: Any, place: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise bad("chat completions only support assistant tool_calls of type 'function'.", "tool_calls")
    written = function.get("arguments")
    if not isinstance(written, str):
        raise invalid("string_type", f"{place}.arguments", "Input should be a valid string", written)
    return {**call, "function": {**function, "arguments": _arguments(written)}}


def _arguments(written: str) -> dict[str, Any]:
    """Return arguments as an object; what is broken or of another kind becomes an empty one."""
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


GOES_ON, OPENED = "continue_final_message", "add_generation_prompt"
BOTH = f"Cannot set both `{GOES_ON}` and `{OPENED}` to True."
UNSAID = f"{GOES_ON} and {OPENED} are not compatible, and the latter is the default; set it to false."


@frozen
class RenderRequest:
    """What to render, and how."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    prompted: bool
    """Whether the assistant's turn is opened."""
    continued: bool
    """Whether the last message goes on."""
    arguments: Mapping[str, Any]

    @classmethod
    def read(cls, body: Body, *, renamed: bool = False) -> RenderRequest:
        """Read it; a template in the request is not trusted.

        Where `renamed`, `reasoning_content` is read as `reasoning`. The engine does that for chat alone: its
        `/tokenize` renders such a message without its thought.
        """
        if body.get("chat_template") is not None:
            raise BadRequest("A chat template in a request is not trusted; render on your side and send ids.")
        prompted, continued = _ending(body)
        return cls(
            messages=_messages(body, renamed=renamed),
            tools=body.objects("tools"),
            prompted=prompted,
            continued=continued,
            arguments=_template_args(body),
        )

    @property
    def thinking(self) -> bool:
        """Whether the reply may begin with a thought."""
        return self.arguments.get("enable_thinking", True) is not False

    def ids(self, family: Family) -> list[int]:
        """Return the ids, or refuse what the template refuses."""
        try:
            text = family.text(
                readied(self.messages),
                tools=self.tools,
                add_generation_prompt=self.prompted,
                continue_final_message=self.continued,
                **self.arguments,
            )
            return family.encode(text)
        except (TemplateRefused, InputError) as error:
            raise BadRequest(str(error.__cause__ or error)) from error


def _ending(body: Body) -> tuple[bool, bool]:
    """Return whether an answer is opened, and whether the last message goes on.

    Opening is the default, so that a message which goes on needs both flags. The engine asks first whether
    both say anything, and the word "false" does; null is no value of theirs.
    """
    if body.get(GOES_ON) and body.get(OPENED):
        raise BadRequest(BOTH)
    for name in (OPENED, GOES_ON):
        if body.values.get(name, True) is None:
            raise invalid("bool_type", f"body.{name}", "Input should be a valid boolean", None)
    prompted, continued = body.flag(OPENED, default=True), body.flag(GOES_ON)
    if prompted and continued:
        raise BadRequest(UNSAID)
    return prompted, continued


def _messages(body: Body, *, renamed: bool) -> list[dict[str, Any]]:
    messages = body.objects("messages") or []
    if not renamed:
        return messages
    return [{"reasoning": message.get("reasoning_content"), **message} for message in messages]


def _template_args(body: Body) -> dict[str, Any]:
    """Return the template's variables; what the request says elsewhere cannot be said here again."""
    taken = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
    given = body.object("chat_template_kwargs")
    return {name: value for name, value in given.items() if name not in taken}
