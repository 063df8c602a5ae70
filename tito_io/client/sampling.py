"""Parse sampling arguments under the names that OpenAI's client and inference engines use.

Every argument is honoured or an `InputError`: a name with a letter missing would change what is sampled
without a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import attrs

from tito_core import InputError
from tito_io.engines.protocol import Sampling

from .constraints import CONSTRAINTS, take_constraint

ELSEWHERE: Mapping[str, str] = {
    "functions": "pass `tools`",
    "function_call": "pass `tools`",
    "max_new_tokens": "write max_tokens",
    "max_output_tokens": "write max_tokens",
    "messages": "pass the prompt",
    "model": "the engine is made with it",
    "prompt": "pass the prompt",
    "sampling_seed": "write seed",
    "stop_sequences": "write stop",
    "stream": "pass `watch`",
    "stream_options": "pass `watch`",
    "tools": "pass `tools`",
}
"""Names that are not sampling arguments here, and what to do instead."""
ONLY: Mapping[str, tuple[Any, str]] = {
    "modalities": (["text"], "only text is sampled"),
    "verbosity": ("medium", "leave it out"),
}
"""Arguments of which one value can be honoured, the one that is the default; and why others cannot."""
ALWAYS = frozenset(("logprobs", "return_token_ids", "return_tokens_as_token_ids"))
"""What every adapter asks its engine for, whatever the caller says."""
LENGTHS = ("max_tokens", "max_completion_tokens")
PARSED = frozenset(
    (
        *LENGTHS,
        "chat_template_kwargs",
        "extra_body",
        "n",
        "reasoning_effort",
        "seed",
        "stop",
        "stop_token_ids",
        "temperature",
    )
)
"""Arguments that become fields of `Sampling` or arguments of the chat template."""
PASSED = frozenset(
    (
        *("allowed_token_ids", "bad_words", "bad_words_token_ids", "bootstrap_host", "bootstrap_port"),
        *("bootstrap_room", "cache_salt", "custom_labels", "custom_logit_processor", "custom_params"),
        *("ebnf", "ec_transfer_params", "extra_args", "extra_key", "frequency_penalty", "guided_choice"),
        *("guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex"),
        *("guided_whitespace_pattern", "ignore_eos", "include_stop_str_in_output", "json_schema"),
        *("logit_bias", "logprob_token_ids", "lora_path", "metadata", "min_new_tokens", "min_p"),
        *("min_tokens", "no_stop_trim", "nvext", "presence_penalty", "priority", "prompt_cache_key"),
        *(
            "prompt_cache_options",
            "prompt_cache_retention",
            "reasoning_ended",
            "reasoning_parser_kwargs",
            "regex",
        ),
        *("repetition_detection", "repetition_penalty", "request_id", "return_hidden_states"),
        *("return_indexer_topk", "return_routed_experts", "return_sampling_mask", "routed_dp_rank"),
        *("routed_experts_prompt_start", "routed_experts_start_len", "routing_key"),
        *("safety_identifier", "service_tier", "session_params", "skip_reading_prefix_cache"),
        *("skip_special_tokens", "spaces_between_special_tokens", "stop_regex", "store"),
        *("structural_tag", "structured_outputs", "thinking_token_budget", "top_k", "top_logprobs"),
        *("top_logprobs_num", "top_p", "user", "vllm_xargs", "watermarking"),
    )
)
"""Arguments that engines know under these names. They are sent as they are, and adapters refuse what their
engine lacks."""
NAMES = ALWAYS | CONSTRAINTS | PARSED | PASSED | ONLY.keys()


class SamplingError(InputError):
    """The value of a sampling argument is wrong.

    Attributes:
        argument: The argument's name.
    """

    def __init__(self, message: str, argument: str = "") -> None:
        """Keep the name beside the message; a pickle sets it again."""
        super().__init__(message)
        self.argument = argument


@attrs.frozen
class SamplingArgs:
    """Sampling arguments, parsed.

    Attributes:
        sampling: How to sample.
        template_args: Arguments of the chat template. They change the prompt's ids, and the bridge's.
    """

    sampling: Sampling
    template_args: Mapping[str, Any]

    def among(self, tools: Sequence[Mapping[str, Any]]) -> SamplingArgs:
        """Return the arguments with what can be constrained where these tools are offered.

        Raises:
            InputError: A call is demanded of a tool that is not offered.
        """
        asked = self.sampling.constraint
        if asked is None:
            return self
        return attrs.evolve(self, sampling=attrs.evolve(self.sampling, constraint=asked.among(tools)))


def parse_sampling(args: Mapping[str, Any] | None, names: Collection[str] = ()) -> SamplingArgs:
    """Parse sampling arguments; raises `InputError` naming the one that is wrong or unknown.

    Args:
        args: The arguments by name. None for a value is the same as no argument. Where `extra_body` repeats
            an argument, `extra_body` holds, as it does in OpenAI's client.
        names: Further arguments that the engine knows. They are sent as they are.

    >>> parsed = parse_sampling({"max_tokens": 8, "stop": "END", "top_p": None, "extra_body": {"top_k": 5}})
    >>> parsed.sampling.max_tokens, parsed.sampling.stop, parsed.sampling.extra
    (8, ('END',), {'top_k': 5})
    >>> parse_sampling({"maxtokens": 8})
    Traceback (most recent call last):
    tito_core.errors.InputError: sampling: 'maxtokens' is unknown; did you mean 'max_tokens'?
    """
    given = _merged(as_arguments(args))
    _check_names(given, NAMES | set(names))
    _drop_defaults(given)
    sampling = Sampling(
        max_tokens=_length(given),
        temperature=_taken(given, "temperature", _number),
        seed=_taken(given, "seed", _whole),
        stop=_taken(given, "stop", _texts) or (),
        stop_ids=_taken(given, "stop_token_ids", _ids) or (),
        n=_taken(given, "n", _count) or 1,
        constraint=take_constraint(given),
    )
    template_args = dict(_taken(given, "chat_template_kwargs", _mapping) or {})
    effort = given.pop("reasoning_effort", None)  # templates read it: as a request's field, bridges lack it
    if effort is not None:
        template_args.setdefault("reasoning_effort", effort)
    return SamplingArgs(attrs.evolve(sampling, extra=given), template_args)


def as_arguments(args: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return sampling arguments by name, none for None; raises `InputError` for what is not a mapping.

    >>> as_arguments([8])
    Traceback (most recent call last):
    tito_core.errors.InputError: sampling is [8]: give arguments by name, such as {"max_tokens": 64}
    """
    if args is None:
        return {}
    if not isinstance(args, Mapping):
        raise InputError(f'sampling is {args!r:.60}: give arguments by name, such as {{"max_tokens": 64}}')
    return args


def no_others(unknown: Iterable[str]) -> None:
    """Raise `InputError` for keyword arguments that a turn does not take.

    >>> no_others(["max_tokens"])
    Traceback (most recent call last):
    tito_core.errors.InputError: a turn takes no argument max_tokens: sampling arguments go into `sampling`, \
such as sampling={"max_tokens": 64}
    """
    for name in unknown:
        how = 'sampling arguments go into `sampling`, such as sampling={"max_tokens": 64}'
        raise InputError(f"a turn takes no argument {name:.60}: {how}")


def _merged(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are not None, those of `extra_body` among them."""
    extra = _mapping("extra_body", args.get("extra_body") or {})
    both = {**{name: value for name, value in args.items() if name != "extra_body"}, **extra}
    return {name: value for name, value in both.items() if value is not None and name not in ALWAYS}


def _check_names(given: Mapping[str, Any], known: Collection[str]) -> None:
    for name in given:
        if name in ELSEWHERE:
            raise InputError(f"sampling: {name!r} is not a sampling argument; {ELSEWHERE[name]}")
        if name not in known:
            close = get_close_matches(str(name), known, n=1)
            advice = f"did you mean {close[0]!r}?" if close else "leave it out"
            raise InputError(f"sampling: {name!r:.60} is unknown; {advice}")


def _drop_defaults(given: dict[str, Any]) -> None:
    """Take out arguments that only repeat a default; raises `InputError` for their other values."""
    for name, (default, why) in ONLY.items():
        value = given.pop(name, default)
        if value != default or type(value) is not type(default):
            raise InputError(f"sampling.{name} is {value!r:.60}, which cannot be honoured: {why}")


def _length(given: dict[str, Any]) -> int | None:
    """Return the most ids to sample, under whichever of its names it is given."""
    values = {name: _taken(given, name, _count) for name in LENGTHS}
    distinct = {value for value in values.values() if value is not None}
    if len(distinct) > 1:
        lengths = " and ".join(f"{name} is {value}" for name, value in values.items())
        raise SamplingError(f"sampling: {lengths}, and both mean the same; send one of them", LENGTHS[0])
    return distinct.pop() if distinct else None


def _taken(given: dict[str, Any], name: str, checked: Callable[[str, Any], Any]) -> Any:
    """Take an argument out and check it; None where it is missing."""
    return checked(name, given.pop(name)) if name in given else None


def _demand(fits: bool, name: str, value: Any, instead: str) -> None:
    """Raise `SamplingError` for a value that does not fit, with what to give instead."""
    if not fits:
        raise SamplingError(f"sampling.{name} is {value!r:.60}; give {instead}", name)


def _number(name: str, value: Any) -> Any:
    _demand(isinstance(value, int | float) and not isinstance(value, bool), name, value, "a number")
    return value


def _whole(name: str, value: Any) -> int:
    _demand(type(value) is int, name, value, "a whole number")
    return int(value)


def _count(name: str, value: Any) -> int:
    _demand(_whole(name, value) >= 1, name, value, "at least 1")
    return int(value)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """Return stop strings; a single one may come without a list."""
    texts = (value,) if isinstance(value, str) else value
    _demand(_is_list(texts), name, value, "a string or a list of them")
    full = all(isinstance(text, str) and text for text in texts)
    _demand(full, name, value, "strings that are not empty")
    return tuple(texts)


def _ids(name: str, value: Any) -> tuple[int, ...]:
    _demand(_is_list(value), name, value, "a list")
    return tuple(_whole(name, one) for one in value)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    _demand(isinstance(value, Mapping), name, value, "an object")
    return dict(value)
