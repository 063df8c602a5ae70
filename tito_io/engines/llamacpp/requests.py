"""Request bodies for llama.cpp's `/completion`, and the keys that `Sampling.extra` may add.

The server takes samplers that a request leaves out from its command line, from the model file
(`general.sampling.*`), or from its own defaults, which are not neutral: temperature 0.8, top_k 40, top_p
0.95, min_p 0.05. So every request states all of them. A key that the server does not know it ignores: only
those that it is known to read are sent.

The names are those of `task_params` in the server's `server-task.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tito_core import Ids, InputError
from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.openai_fields import sampling_keys
from tito_io.engines.protocol import Sampling, UnsupportedError

COMPLETION = "/completion"

NEUTRAL: Mapping[str, Any] = {
    "temperature": 1.0,
    "dynatemp_range": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "top_n_sigma": -1.0,
    "typical_p": 1.0,
    "xtc_probability": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "adaptive_target": -1.0,
    "ignore_eos": False,
}
"""Samplers that change nothing: an id is sampled from the model's own distribution."""
SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
"""The samplers in their usual order; a server may have been started with fewer."""
FIXED: Mapping[str, Any] = {
    "return_tokens": True,
    "n_probs": 1,
    "post_sampling_probs": False,
    "samplers": SAMPLERS,
    "stream": False,  # a stream leaves out the ids inside characters
    "n_cache_reuse": 0,  # reused parts of another prompt have seen other ids before them
}
"""What makes all ids come back, and raw log-probabilities with them."""
RENAMED: Mapping[str, str] = {"repetition_penalty": "repeat_penalty"}
"""Names of other engines, and what this one calls them."""
KNOWN = frozenset(
    (
        *(NEUTRAL.keys() - {"temperature"}),
        *("adaptive_decay", "cache_prompt", "dry_allowed_length", "dry_base", "dry_penalty_last_n"),
        *("dry_sequence_breakers", "dynatemp_exponent", "grammar", "id_slot", "logit_bias"),
        *("lora", "min_keep", "mirostat_eta", "mirostat_tau", "n_probs", "repeat_last_n"),
        *("samplers", "t_max_predict_ms", "xtc_threshold"),
    )
)
"""Keys of `Sampling.extra` that the server reads, and that leave ids and log-probabilities whole."""
REJECTED: Mapping[str, str] = {
    "n_cache_reuse": "ids of another prompt's cache would have seen other ids before them; leave it out",
    "json_schema": "pass `Sampling.constraint`, whose effect is checked, or a `grammar`",
}
"""Keys that are rejected although the server reads them, and what to do instead."""
OWNED = frozenset(
    (
        *("max_completion_tokens", "max_tokens", "n", "n_cmpl", "n_predict", "post_sampling_probs", "prompt"),
        *("response_fields", "return_progress", "return_tokens", "seed", "stop", "stop_token_ids", "stream"),
        *("stream_options", "temperature"),
    )
)
"""Keys that `Sampling.extra` may not hold: the adapter sets them, or the answer would not match the ids."""


def completion(turn: TurnAfterIds, schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the body that requests a turn after ids, bound by a JSON schema where there is one.

    `n_predict` always goes along, and within the context: without it the server samples to the context's end.
    """
    keys = sampling_keys(turn.sampling, turn.max_tokens, OWNED, ("n_predict", "seed"))
    body = {"model": turn.model.name, "prompt": turn.ids, "cache_prompt": True, **NEUTRAL, **FIXED}
    bound = {} if schema is None else {"json_schema": schema}
    return {**body, **keys, **_extra(turn.sampling), **bound}


def _extra(sampling: Sampling) -> dict[str, Any]:
    """Return the caller's further keys, under this server's names."""
    keys = {RENAMED.get(name, name): value for name, value in sampling.extra.items()}
    if "top_logprobs" in keys:  # OpenAI's name; 0 asks for the sampled id alone, which takes 1 here
        keys["n_probs"] = keys.pop("top_logprobs") or 1
    for name in sorted(keys.keys() - KNOWN):
        why = REJECTED.get(name, "/completion does not know it, and ignores such keys silently; leave it out")
        raise UnsupportedError(
            f"Sampling.extra: {name!r} does not work with llama.cpp: {why}. Nothing was sent",
            parameter="sampling",
        )
    probs = keys.get("n_probs", 1)
    if type(probs) is not int or probs < 1:
        raise InputError(
            f"Sampling.extra: n_probs is {probs!r}: ask for 1 or more, or no log-probability comes"
        )
    return keys


def end_probe(model: str, index: int) -> dict[str, Any]:
    """Return the body that forces an id to be sampled, which shows whether it ends a turn."""
    body = {"model": model, "prompt": [index], "n_predict": 2, "logit_bias": [[index, 1000]]}
    return {**body, **NEUTRAL, **FIXED, "cache_prompt": False}


def schema_probe(model: str, index: int, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body that forces an id which no JSON begins with, against a schema.

    Where the id is sampled the server ignores the schema. Builds with llguidance do so where they cannot use
    one, and repeat it in their answer as if they did.
    """
    return {**end_probe(model, index), "n_predict": 1, "json_schema": schema}


def scoring(model: str, ids: Ids, whole: int, alternatives: int, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body that requests the likeliest ids after `ids`, with raw log-probabilities.

    The distribution comes with a sampled id only if that ends no character in its middle, so `whole`, an id
    of a whole character, is forced. A bias does not change raw log-probabilities. Of `extra`, what the turn
    was sampled with, the adapters and the place in the cache stay.
    """
    body = {
        "model": model,
        "prompt": ids,
        "n_predict": 1,
        "logit_bias": [[whole, 1000]],
        "cache_prompt": True,
    }
    same = {name: extra[name] for name in ("lora", "id_slot") if name in extra}
    return {**body, **NEUTRAL, **FIXED, **same, "n_probs": alternatives}


def repeated(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the answer repeats of a body under the same name and with the same value.

    A seed of several turns and -1, which means the context's length, come back otherwise.
    """
    numbers = {
        name: value
        for name, value in body.items()
        if isinstance(value, int | float) and name != "seed" and (value != -1 or name in NEUTRAL)
    }
    return numbers if body["samplers"] == SAMPLERS else {**numbers, "samplers": body["samplers"]}
