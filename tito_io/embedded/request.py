"""What a request for a reply asks for, apart from its prompt; chat and completions ask almost alike."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from .body import Body
from .errors import Refused, bad, unsupported
from .sampling import Sampling

MOST_LOGPROBS = 20
REFUSED = (
    *("echo", "logit_bias", "allowed_token_ids", "bad_words", "structured_outputs"),
    *("use_beam_search", "suffix", "truncate_prompt_tokens", "prompt_embeds", "logprob_token_ids"),
)
"""Without these a reply is not what was asked for. What only shapes a distribution is ignored instead."""


@frozen(kw_only=True)
class Asked:
    """The options that decide what a reply looks like on the wire, and which reply it is."""

    sampling: Sampling
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


def asked(body: Body, *, max_tokens: int, logprobs: int | None, **sampling: Any) -> Asked:
    """Read the options that both routes share; `sampling` are those that only one has."""
    _possible(body)
    stream, options = body.flag("stream"), Body(body.object("stream_options"))
    if options.values and not stream:
        raise bad("Stream options can only be defined when `stream=True`.", "stream_options")
    greedy = body.number("temperature") == 0
    at_end = options.flag("include_usage")
    return Asked(
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


def _checked(body: Body, max_tokens: int, *, greedy: bool, **sampling: Any) -> Sampling:
    """Read what decides the ids. Without temperature the seed decides nothing."""
    temperature, least = body.number("temperature"), body.integer("min_tokens") or 0
    if temperature is not None and temperature < 0:
        told = float(temperature)
        raise bad(f"temperature must be non-negative, got {told}.", "temperature", told)
    if max_tokens < 1:
        raise bad(f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens)
    if not 0 <= least <= max_tokens:
        raise Refused(f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {least}.")
    stop = body.texts("stop")
    if "" in stop:
        raise Refused("stop cannot contain an empty string.")
    return Sampling(
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
        raise Refused(f"n must be at least 1, got {count}.")
    if count > 1 and greedy:
        raise Refused(f"n must be 1 when using greedy sampling, got {count}.")
    return count


def _few(logprobs: int | None) -> int | None:
    if logprobs is not None and not 0 <= logprobs <= MOST_LOGPROBS:
        text = f"Requested sample logprobs of {logprobs}, which is greater than max allowed: {MOST_LOGPROBS}"
        raise bad(text, "logprobs", logprobs)
    return logprobs
