"""Request bodies for LMDeploy's `/generate`, and what that route cannot do.

Facts are those of LMDeploy 0.18.0; paths are relative to its package. The route has no model name and no
seed (`serve/openai/protocol.py`, `GenerateReqInput`), and ignores keys that it does not know. What a request
leaves out comes from the model's `generation_config.json`, else from defaults that are not neutral:
temperature 0.8 and top_k 50 (`messages.py`, `GenerationConfig`). So every request states all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError
from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.openai_fields import check_sampling
from tito_io.engines.protocol import Sampling, UnsupportedError

GENERATE = "/generate"

NEUTRAL: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""Samplers that change nothing: an id is sampled from the model's own distribution."""
FIXED: Mapping[str, Any] = {
    "include_stop_str_in_output": True,  # or the stop token is left out of ids and counts
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
}
KNOWN = frozenset(
    (
        *(NEUTRAL.keys() - {"temperature"}),
        *("ignore_eos", "repetition_ngram_size", "repetition_ngram_threshold"),
    )
)
"""Keys of `Sampling.extra` that the route reads, and that leave ids and log-probabilities whole."""
ROOM = 1 << 20
"""What to ask for where the context length is unknown: the engine cuts it to what is left of the context
(`pytorch/engine/engine.py`, `_add_message`). Without a number it samples 128 ids."""


def generation(turn: TurnAfterIds, stop_ids: Sequence[int], *, logprobs: bool) -> dict[str, Any]:
    """Return the body that requests a turn after ids.

    Where the caller names stop ids, those of the model's chat template are no longer used
    (`serve/core/async_engine.py`, `_determine_gen_config`): `stop_ids`, the folder's, go along.
    """
    sampling = turn.sampling
    check_supported(sampling)
    body = {"input_ids": turn.ids, "max_tokens": turn.max_tokens or ROOM, "return_logprob": logprobs}
    body |= {**NEUTRAL, **FIXED, **sampling.extra}
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.stop_ids:
        body["stop_token_ids"] = sorted({*sampling.stop_ids, *stop_ids})
    return body


def check_supported(sampling: Sampling) -> None:
    """Raise `UnsupportedError` for parameters that the route ignores or does otherwise than asked."""
    check_sampling(sampling, sampling.max_tokens, owned=OWNED)
    for name, why in _lacking(sampling):
        raise UnsupportedError(
            f"{name} does not work with LMDeploy: {why}. Nothing was sent", parameter="sampling"
        )
    if sampling.extra.get("ignore_eos") and sampling.stop_ids:
        raise InputError("Sampling.stop_ids: ignore_eos ignores these as well; leave one of them out")


def _lacking(sampling: Sampling) -> Sequence[tuple[str, str]]:
    """Return the parameters that cannot be honoured, and why."""
    found = []
    if sampling.n > 1:
        found.append(("Sampling.n", "a request of /generate is one turn; ask several times"))
    if sampling.seed is not None:
        found.append(("Sampling.seed", "/generate takes none; leave it out"))
    if sampling.stop:
        why = "it ends turns at single ids, and ignores a string that several ids spell; pass `stop_ids`"
        found.append(("Sampling.stop", why))
    unknown = sorted(sampling.extra.keys() - KNOWN)
    if unknown:
        why = "/generate does not know it, and ignores such keys silently; leave it out"
        found.append((f"Sampling.extra: {unknown[0]!r:.60}", why))
    return found


OWNED = frozenset(
    (
        *FIXED,
        *("image_data", "input_ids", "logprob_start_len", "max_tokens", "prompt", "return_logprob"),
        *("return_routed_experts", "seed", "session_id", "stop", "stop_token_ids", "stream", "temperature"),
        "top_logprobs_num",
    )
)
"""Keys that `Sampling.extra` may not hold: the adapter sets them, or the answer would not match the ids."""
